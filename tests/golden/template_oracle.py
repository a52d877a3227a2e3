"""jinja2 set up as Hugging Face transformers sets it up for chat templates, as the oracle of the comparison.

`strict` is that environment. `permissive` differs in two points that flashd allows on purpose: lists and dicts may
be changed (append, pop ...: every rendering has its own copy), and there is a filter from_json.
"""
import datetime
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

NOW = 1765432100  # what strftime_now shows


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what the assistant said; a macro call underneath, so a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _support(self, context, caller):
        return caller()


def make_environment(base):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(format)

    environment = base(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


strict = make_environment(ImmutableSandboxedEnvironment)
permissive = make_environment(SandboxedEnvironment)
permissive.filters["from_json"] = json.loads
compiled = {}


class Refused(Exception):
    """The template does not compile, or raises."""


def render_in(environment, source, context):
    key = (environment is strict, source)
    if key not in compiled:
        try:
            compiled[key] = environment.from_string(source)
        except Exception as e:
            compiled[key] = e
    template = compiled[key]
    if isinstance(template, Exception):
        raise template
    return template.render(**json.loads(json.dumps(context)))


def render(source, context):
    """-> (text, whether the permissive environment was needed); raises Refused."""
    try:
        return render_in(strict, source, context), False
    except Exception as e:
        if not isinstance(e, jinja2.exceptions.SecurityError) and "'from_json'" not in str(e):
            raise Refused(f"{type(e).__name__}: {e}") from e
    try:
        return render_in(permissive, source, context), True
    except Exception as e:
        raise Refused(f"{type(e).__name__}: {e}") from e
