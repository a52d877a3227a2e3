#!/usr/bin/env python3
"""Compares flashd's chat templates byte for byte with jinja2 as Hugging Face sets it up.

    tests/golden/compare_templates.py build/tests/golden/render_main [--templates FOLDER] [--all] [--verbose]

Three sets: SmolLM2's template and the .jinja files of a folder (FLASHD_SHARED_DATA/chat_templates unless given;
skipped when there is none), each on every conversation of template_cases.py; and the lines of template_snippets.py,
one feature of the language each. Where the oracle refuses, flashd must refuse too. Exit 1 on any difference.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

import template_cases
import template_oracle
import template_snippets

SMOLLM2 = pathlib.Path(__file__).with_name("smollm2.jinja")


def render_all(program, source, contexts):
    """What flashd makes of each context, in order."""
    jobs = []
    for i, (_, context) in enumerate(contexts):
        job = {"context": context, "trusted": ["bos_token", "eos_token"], "now": template_oracle.NOW}
        if i == 0:
            job["template"] = source
        jobs.append(json.dumps(job, ensure_ascii=False))
    done = subprocess.run([program], input="\n".join(jobs).encode() + b"\n", stdout=subprocess.PIPE)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(jobs):
        sys.exit(f"the renderer died ({done.returncode}) at {source[:200]!r} {jobs[len(answers)][:2000]}")
    return answers


def difference(ours, source, context):
    """-> (None or a sentence, 'same' | 'refused' | 'permissive')"""
    try:
        expected, permissive = template_oracle.render(source, context)
    except template_oracle.Refused as e:
        if "text" not in ours:
            words = str(e).removeprefix("TemplateError: ")
            if str(e).startswith("TemplateError: ") and words != ours["error"]:
                return f"raises {ours['error']!r}\n  expected {words!r}", "refused"
            return None, "refused"
        return f"gave {ours['text']!r:.300}\n  expected a refusal: {e}", "refused"
    if "text" not in ours:
        return f"refused: {ours['error']}\n  expected {expected!r:.300}", "same"
    if ours["text"] != expected:
        at = len(os.path.commonprefix([ours["text"], expected]))
        return (f"differs at {at}: {ours['text'][max(at - 40, 0):at + 60]!r}\n"
                f"  expected       {expected[max(at - 40, 0):at + 60]!r}"), "same"
    return None, "permissive" if permissive else "same"


def compare(program, name, source, contexts, verbose):
    counts = {"same": 0, "refused": 0, "permissive": 0}
    differences = 0
    for (case, context), ours in zip(contexts, render_all(program, source, contexts)):
        sentence, kind = difference(ours, source, context)
        if sentence is None:
            counts[kind] += 1
            continue
        differences += 1
        if differences <= (1000 if verbose else 3):
            print(f"DIFFERENT {name} [{case}]: {sentence}")
    return counts, differences


def folder_of_templates(argument):
    if argument:
        return pathlib.Path(argument)
    shared = os.environ.get("FLASHD_SHARED_DATA")
    return pathlib.Path(shared) / "chat_templates" if shared else None


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("program")
    arguments.add_argument("--templates")
    arguments.add_argument("--all", action="store_true", help="every conversation, not every fifth")
    arguments.add_argument("--verbose", action="store_true")
    options = arguments.parse_args()
    templates = [SMOLLM2]
    folder = folder_of_templates(options.templates)
    if folder and folder.is_dir():
        templates += sorted(folder.glob("*.jinja"))
    else:
        print("skipped: no folder of chat templates (FLASHD_SHARED_DATA or --templates)")

    total = failed = 0
    contexts = list(template_cases.contexts())
    if not options.all:
        contexts = contexts[::5]  # prime to the numbers of tools, options and prompts: all are met
    for path in templates:
        counts, differences = compare(options.program, path.stem, path.read_bytes().decode(), contexts, options.verbose)
        total += len(contexts)
        failed += differences
        print(f"{'ok  ' if differences == 0 else 'FAIL'} {path.stem}: {counts['same']} equal, "
              f"{counts['refused']} refused by both, {counts['permissive']} equal with lists changeable, "
              f"{differences} different")
    for source in template_snippets.SNIPPETS:
        counts, differences = compare(options.program, source, source, [("snippet", template_snippets.CONTEXT)], True)
        total += 1
        failed += differences
    print(f"{len(template_snippets.SNIPPETS)} snippets; {total} renderings in all, {failed} different")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
