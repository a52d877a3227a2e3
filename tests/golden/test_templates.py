"""flashd's chat templates byte for byte against jinja2 (compare_templates.py says over what)."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/tests/golden/render_main"


def test_templates():
    subprocess.run(["make", "-s", str(PROGRAM.relative_to(ROOT))], cwd=ROOT, check=True)
    script = pathlib.Path(__file__).with_name("compare_templates.py")
    result = subprocess.run([sys.executable, script, PROGRAM], capture_output=True, text=True, check=False)
    print(result.stdout[-2000:])
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
