"""A command-line agent as a child process, with a home of its own and nothing of ours in its environment."""
import os
import subprocess
import tempfile


def run_agent(command, files, environment):
    """-> what it prints. files: what lies in its folder, {name: text or bytes}; {home} in texts of the environment is its home."""
    with tempfile.TemporaryDirectory() as home:
        work = os.path.join(home, "work")
        os.mkdir(work)
        for name, text in files.items():
            with open(os.path.join(work, name), "wb") as f:
                f.write(text if isinstance(text, bytes) else text.encode())
        environment = {name: text.format(home=home) for name, text in environment.items()}
        result = subprocess.run(command, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                timeout=120, env={"HOME": home, "PATH": os.environ["PATH"], **environment})
        assert result.returncode == 0, result.stdout[-1000:] + result.stderr[-2000:]
        return result.stdout
