"""translate.py FROM TO - a file of the CUDA device as C++ that any compiler takes: launches, shared memory (memory.h), and each
function that has an instruction of its own (asm) turned into a call of the emulator's function of that name (asm.h). Lines stay where they are."""
import re
import sys

FUNCTION = re.compile(r"^((?:template <([^\n]*)>\s)?[^\n{};#/*()][^{};#()]*?\b(\w+)\(((?:[^{};()]|\(&\w+\))*)\)(?: const)?)\n\{\n(.*?)^\}\n", re.M | re.S)
LAUNCH = re.compile(r"\b(\w+(?:<[^<>;]*>)?)<<<(.*?), ([\w:* ]+), ([\w:]+), d->stream>>>\(", re.S)
DYNAMIC = re.compile(r"extern __shared__ (?:__align__\((\d+)\) )?unsigned char (\w+)\[\];")
SHARED = re.compile(r"^( *)__shared__ (?:__align__\((\d+)\) )?((?:struct |union )?[\w:]+) ([^;]+);", re.M)
WGMMA = re.compile(r"(void (FUNCTION|wgmma_registers)\(.*?\{) +\\\n(.*?)\n    \}", re.S)


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
    rest = "\n" * (body.count("\n") - 1)
    return "%s\n{\n    return emulated::%s%s(%s);\n%s}\n" % (head, name, arguments, ", ".join(names(parameters)), rest)


def product(match):
    """Of a warp group; they are defined by macros."""
    head, name, body = match.groups()
    template = "<TRANSPOSED>" if name == "wgmma_registers" else ""
    return "%s return emulated::%s%s(d, a, b, add); %s}" % (head, name, template, "\\\n" * (body.count("\n") + 2))


def shared(match):
    indent, alignment, of, variables = match.groups()
    declared = re.findall(r"(\w+)((?:\[[^\]]*\])*)(?:, |$)", variables)
    return indent + " ".join("static %s (&%s)%s = emulated::shared<%s%s, %s>();" % (of, name, sizes, of, sizes, alignment or 1)
                    for name, sizes in declared)


def main(source, target):
    text = open(source).read()
    text = WGMMA.sub(product, text)
    text = FUNCTION.sub(emulated, text)
    text = LAUNCH.sub(r"emulated::launch(\2, \3, \4, d->stream, [=](auto... of) { \1(of...); })(", text)
    text = DYNAMIC.sub(lambda found: "unsigned char *%s = emulated::dynamic_shared(%s);" % (found[2], found[1] or 1), text)
    text = SHARED.sub(shared, text)
    # no clock tells which product is the fastest: each runs once, and those that can take turns at being chosen
    text = re.sub(r"\bTIMED_TURNS = \d+", "TIMED_TURNS = 0", text)
    text = re.sub(r"\bint num_runs = [^;]*;", "int num_runs = 1;", text)
    text = text.replace("size_t winner = 0;", "size_t winner = emulated::turn(best);").replace("if (turn > 0 && ms", "if (ms")
    open(target, "w").write('#line 1 "%s"\n%s' % (source, text))


main(*sys.argv[1:])
