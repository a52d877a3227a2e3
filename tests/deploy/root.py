"""A root of Debian 12 as its image is (debootstrap's minbase), and commands in it: chroot with /proc, /dev and the machine's network."""

import os
import pathlib
import shutil
import subprocess

MOUNT = """set -e; root=$1; shift
mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"; mount -t tmpfs tmpfs "$root/run"
if [ -n "$ALONE" ]; then ip link set lo up; fi
exec chroot "$@"
"""


def mirror():
    sites = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"], capture_output=True, text=True, check=True)
    return sites.stdout.split()[0]


def make_base(base):
    """Kept from one run to the next."""
    if not (base / "made").exists():
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir(parents=True)
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", str(base), mirror()], check=True, stdout=subprocess.DEVNULL)
        (base / "made").touch()
    return base


def copy(base, root):
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["cp", "-a", str(base), str(root)], check=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    return root


def command(root, words, alone=False, user=None):
    """alone: in a network of its own, which has a loopback device."""
    spaces = ["--mount", "--pid", "--fork", "--kill-child"] + (["--net"] if alone else [])
    options = [f"--userspec={user}"] if user else []
    return ["unshare", *spaces, "bash", "-c", MOUNT, "mount", str(root), *options, str(root), *words]


def run(root, *words, env=None, alone=False, user=None, **options):
    clean = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive",
             "ALONE": "yes" if alone else "", **(env or {})}
    return subprocess.run(command(root, words, alone, user), env=clean, check=True, **options)


ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(os.environ.get("DEPLOY_FOLDER", "/var/tmp/flashd-deploy"))  # not in build/: make reads all there
