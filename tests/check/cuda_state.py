"""cuda_state.py [FOLDER] - prints every variable in the objects of the CUDA device that could be written to, and fails if there
is one. FOLDER has the objects (build/kernels/cuda).

What the CUDA device remembers hangs on struct cuda_device: it goes when the device is closed, and two devices share nothing.
Let through is what nvcc adds to register kernels, and what points to the types of exceptions.
"""
import pathlib
import re
import subprocess
import sys

SYMBOL = re.compile(r"^[0-9a-f]+ ......O (\S+)\t[0-9a-f]+ (?:\.hidden )?(\S+)$", re.M)
WRITABLE = re.compile(r"\.(data|bss|tdata|tbss)(?!\.rel\.ro)\b|\*COM\*")
OF_NVCC = re.compile(r"__cudaFatCubinHandle|__device_stub__|DW\.ref\.(__gxx_personality_v0|_ZTI\w+)$")


def variables(obj):
    table = subprocess.run(["objdump", "-t", obj], capture_output=True, text=True, check=True).stdout
    return [name for section, name in SYMBOL.findall(table) if WRITABLE.match(section) and not OF_NVCC.search(name)]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/kernels/cuda")
    objects = [folder / f"{source.stem}.o" for source in sorted(pathlib.Path("kernels/cuda").glob("*.cu"))]
    objects = [obj for obj in objects if obj.exists()]
    if not objects:
        print("check: the CUDA device was not built; its variables were not looked at")
    found = [(obj, name) for obj in objects for name in variables(obj)]
    for obj, name in found:
        print(f"{obj}: {name} is a variable of the process: it belongs into struct cuda_device")
    return 1 if found else 0


sys.exit(main())
