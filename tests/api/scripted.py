"""A server whose model says what a script says (tests/scripted/server.c), on the text files of the real model."""
import contextlib
import json
import os
import pathlib
import subprocess
import tempfile

import conftest

PROGRAM = conftest.ROOT / os.environ.get("FLASHD_SCRIPTED_BIN", "build/tests/scripted/server")


@contextlib.contextmanager
def scripted_server(*options, template=None):
    """-> (server, script): script(rules) sets what is said from now on, rules a list of (when, say). template: source of the
    chat template, instead of the model's own."""
    subprocess.run(["make", "-s", str(PROGRAM.relative_to(conftest.ROOT))], cwd=conftest.ROOT, check=True)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "script.json"

        def script(rules):
            file.write_text(json.dumps([{"when": when, "say": say} for when, say in rules]), encoding="utf-8")

        script([])
        if template is not None:
            path = pathlib.Path(folder) / "template.jinja"
            path.write_text(template, encoding="utf-8")
            options = ("--chat-template", str(path), *options)
        server = conftest.Server(*options, binary=PROGRAM, env={"FLASHD_SCRIPT": str(file)})
        server.script_file = str(file)
        try:
            yield server, script
        finally:
            server.process.terminate()
            assert server.process.wait(30) == 0, server.log()
