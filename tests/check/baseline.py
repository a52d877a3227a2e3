"""baseline.py [BUILD...] - prints every function that has instructions of AVX or later and could run on a machine without
them, and fails if there is one. BUILD is a folder of a finished build (build and build-san where there are).

Such a machine runs all but the sets of kernels/cpu/avx*, which are called through tables after asking the processor. So

    objects elsewhere    have no such instruction, but for what is no part of the program (CUDA, tests/emulator)
    a set's objects      share no function with others by name: the linker would keep one of the two for everybody;
                         and what the compiler adds to run at the start has none
    test programs        that include a set's source have them in its functions and in those that emulate instructions
"""
import pathlib
import re
import subprocess
import sys

FUNCTION = re.compile(r"^[0-9a-f]+ <([^>.]+).*>:$")  # without the suffixes of the compiler's clones
INSTRUCTION = re.compile(r"\tv[a-z]|%[yz]mm|%k[0-7]|%tmm")
AT_START = re.compile(r"_sub_[ID]_|_GLOBAL_")
EMULATION = re.compile(r"emulated_")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def vector_functions(path):
    """Names of the functions that have such instructions."""
    names, name = set(), None
    for line in output("objdump", "-d", "--no-show-raw-insn", path).splitlines():
        if match := FUNCTION.match(line):
            name = match.group(1)
        elif INSTRUCTION.search(line):
            names.add(name)
    return names


def shared_functions(path):
    """Names of the functions that the linker knows."""
    return {line.split()[-1] for line in output("nm", "--extern-only", "--defined-only", path).splitlines()
            if line.split()[-2] in "TWVui"}


def faults(build):
    """(path, names) of each object and program of a build that breaks a rule."""
    objects = {path for path in build.rglob("*.o") if "cuda" not in str(path) and "emulator" not in path.parts}
    sets = {path for path in objects if path.match("kernels/cpu/avx*/*.o")}
    of_sets = set()
    for path in sets:
        of_set = vector_functions(path)
        yield path, shared_functions(path) | {name for name in of_set if AT_START.match(name)}
        of_sets |= of_set
    for path in objects - sets:
        yield path, vector_functions(path)
    for source in output("git", "grep", "-l", "pragma GCC target", "tests/kernels/*.c").split():
        program = (build / source).with_suffix("")
        if program.exists():
            yield program, {name for name in vector_functions(program) - of_sets if not EMULATION.match(name)}


builds = [pathlib.Path(name) for name in sys.argv[1:] or ("build", "build-san") if pathlib.Path(name).exists()]
found = [f"{path}: {name}" for build in builds for path, names in faults(build) for name in sorted(names)]
print("".join(f"{line} needs more than the baseline\n" for line in found), end="")
sys.exit(1 if found else 0)
