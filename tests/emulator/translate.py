"""translate.py FROM TO - a file of the CUDA device as C++ that any compiler takes: launches, dynamic shared memory, and each
function that has an instruction of its own (asm) turned into a call of the emulator's function of that name (asm.h)."""
import re
import sys

FUNCTION = re.compile(r"^((?:template <([^\n]*)>\s)?[^\n{};#/*()][^{};#()]*?\b(\w+)\(((?:[^{};()]|\(&\w+\))*)\)(?: const)?)\n\{\n(.*?)^\}\n", re.M | re.S)
LAUNCH = re.compile(r"\b(\w+(?:<[^<>;]*>)?)<<<(.*?), ([\w:* ]+), ([\w:]+), d->stream>>>\(", re.S)
SHARED = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?unsigned char (\w+)\[\];")


def names(parameters):
    """Of a list of parameters, or of a template's."""
    if parameters.strip() in ("", "void"):
        return []
    return [re.sub(r"\[.*", "", re.sub(r"\(&(\w+)\)", r"\1", one)).split()[-1].strip("&*") for one in parameters.split(",")]


def emulated(match):
    head, template, name, parameters, body = match.groups()
    if "asm" not in body and "HOPPER_ASM" not in body:
        return match.group(0)
    arguments = "<%s>" % ", ".join(names(template)) if template else ""
    return "%s\n{\n    return emulated::%s%s(%s);\n}\n" % (head, name, arguments, ", ".join(names(parameters)))


def main(source, target):
    text = open(source).read()
    # the products of a warp group are defined by macros: their bodies
    text = re.sub(r"(void FUNCTION\(.*?\{) +\\\n.*?\n    \}", r"\1 return emulated::FUNCTION(d, a, b, add); }", text, flags=re.S)
    text = re.sub(r"(void wgmma_registers\(.*?\{) +\\\n.*?\n    \}", r"\1 return emulated::wgmma_registers<TRANSPOSED>(d, a, b, add); }", text,
                  flags=re.S)
    text = FUNCTION.sub(emulated, text)
    text = LAUNCH.sub(r"emulated::launch(\2, \3, \4, d->stream, [=](auto... of) { \1(of...); })(", text)
    text = SHARED.sub(r"unsigned char *\1 = emulated::dynamic_shared;", text)
    text = text.replace("__shared__", "static")
    # no clock tells which product is the fastest: each runs once
    text = re.sub(r"\bTIMED_TURNS = \d+", "TIMED_TURNS = 0", text)
    text = re.sub(r"\bint num_runs = [^;]*;", "int num_runs = 1;", text)
    open(target, "w").write('#line 1 "%s"\n%s' % (source, text))


main(*sys.argv[1:])
