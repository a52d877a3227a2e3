"""run(lines): each line as JSON through the module's PROGRAM, which is built first; its lines come back."""
import json
import subprocess

import pytest


@pytest.fixture(scope="module")
def run(request):
    program, root = request.module.PROGRAM, request.module.ROOT
    subprocess.run(["make", "-s", str(program.relative_to(root))], cwd=root, check=True)

    def run_lines(lines):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        result = subprocess.run([program], input=text, stdout=subprocess.PIPE, text=True, check=True)
        return [json.loads(line) for line in result.stdout.split("\n") if line]  # U+2028 ends no line

    return run_lines
