#!/usr/bin/env python3
"""Classes of the C++ source by their number of methods and of .cpp files: a class is one idea in one file.

Usage: scripts/classes.py [--list [N]] [--root FOLDER]
One line per violation; exit code 1 when there is one. No two types of one program may share a name, namespaces included:
the linker would take the destructor of either for both. --list prints the N largest classes (default 20) and those that have
several .cpp files. It counts what a class declares itself, private methods included; constructors, destructors,
operators, friends, and what is defaulted or deleted do not count.
"""

import argparse
import collections
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from layers import code_only  # noqa: E402

ROOTS = ["cli", "launcher", "runtime"]
# Interfaces that others define, which we only write down.
FOREIGN = {"runtime/front/tensorflow/tf_abi.h", "runtime/front/xla/ffi_abi.h", "runtime/mpi/mpi_abi.h", "runtime/nccl/nccl_abi.h"}
MAX_METHODS = 30
MAX_FILES = 1

SCOPE = re.compile(r"\b(namespace|class|struct|union|enum(?:\s+class)?)\s+((?:HVD_\w+(?:\([^)]*\))?\s+)*)([\w:]+)?([^;{}()=]*)\{")
METHOD = re.compile(r"(~?\b\w+|\boperator\b[^(]*)\s*\(")
NOT_A_NAME = {"if", "for", "while", "switch", "return", "sizeof", "decltype", "alignas", "static_assert", "noexcept", "defined"}
DEFINITION = re.compile(r"^(?!\s|using|#|namespace|class|struct)[^;{}()=]*?\b((?:\w+::)+)(~?\w+)\s*\(", re.M)


def bodies(text):
    """For each class: its name with those around it, and its body with all that stands in inner braces blanked."""
    for found in SCOPE.finditer(text):
        if found[1] not in ("class", "struct") or not found[3]:
            continue
        depth, out = 1, []
        for char in text[found.end():]:
            depth += {"{": 1, "}": -1}.get(char, 0)
            if depth == 0:
                break
            # An inner pair of braces ends a statement as far as counting goes.
            out.append(char if depth == 1 and char != "}" else ";" if char == "}" and depth == 1 else " ")
        yield found.start(), found.end(), found.end() + len(out), found[3], "".join(out)


def shared_names(text):
    """The full names of the types that this text defines and that other files could define too."""
    scopes = {found.end() - 1: found for found in SCOPE.finditer(text)}  # by the place of their brace
    outer, names = [], []  # names of the open braces; "": an unnamed namespace, a function, a list
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "}":
            outer = outer[:-1]
            continue
        found = scopes.get(brace.start())
        outer.append(found[3] or "" if found else "")
        is_type = found and found[1] != "namespace" and re.match(r"\s*(final\b|:|$)", found[4])  # not "struct stat info{}"
        if is_type and all(outer):
            names.append("::".join(outer))
    return names


def methods_of(name, body):
    """The names of the methods that this class body declares."""
    names = []
    body = re.sub(r"\b(public|private|protected)\s*:", ";", re.sub(r"^\s*#.*$", ";", body, flags=re.M))
    for statement in body.split(";"):
        while (cut := re.sub(r"<[^<>]*>", "", statement)) != statement:
            statement = cut
        statement = re.sub(r"\[\[.*?\]\]", "", statement).strip()
        if not statement or re.match(r"(using|friend|typedef|static_assert|class|struct|enum|union|template\s*$)\b", statement):
            continue
        if re.search(r"=\s*(default|delete)\s*$", statement) or re.search(r"[^=!<>]=[^=]", statement.split("(")[0]):
            continue
        found = METHOD.search(statement)
        if not found or found[1] in NOT_A_NAME or found[1].startswith(("~", "operator")) or found[1] == name:
            continue
        if not statement[:found.start()].strip():
            continue  # no type before the name: a call or a macro
        names.append(found[1])
    return names


class Tree:
    def __init__(self, root):
        self.root = root
        self.methods = {}  # by (file, class)
        self.files = collections.defaultdict(set)  # of definitions, by folder and class
        self.types = collections.defaultdict(set)  # the files that define a type of this full name
        for path in sorted(p for top in ROOTS for p in (root / top).rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh")):
            name = str(path.relative_to(root))
            if name not in FOREIGN:
                self.read(name, code_only(path.read_text(encoding="utf-8", errors="replace")))

    def read(self, path, text):
        for name in shared_names(text) if "/no_" not in path else ():
            self.types[name].add(path)
        outer = []
        for begin, start, end, name, body in bodies(text):
            outer = [(stop, of) for stop, of in outer if begin < stop] + [(end, name)]
            self.methods[path, "::".join(of for _, of in outer)] = len(methods_of(name.split("::")[-1], body))
        if path.endswith(".cpp") and "/no_" not in path:  # no_x.cpp stands in x.cpp's place where a library is missing
            for found in DEFINITION.finditer(text):
                self.files[path.rpartition("/")[0], found[1].removesuffix("::")].add(path)

    def several(self):
        """The classes with more than one .cpp file. A function of a namespace, written with its name, is none."""
        known = {(path.rpartition("/")[0], name) for path, name in self.methods}
        return {key: files for key, files in sorted(self.files.items()) if len(files) > MAX_FILES and key in known}

    def check(self):
        found = [f"{path}: class {name} has {count} methods; at most {MAX_METHODS}: which of its ideas is another class?"
                 for (path, name), count in self.methods.items() if count > MAX_METHODS]
        found += [f"{folder}: class {name} is in {len(files)} .cpp files; at most {MAX_FILES}"
                  for (folder, name), files in self.several().items()]
        found += [f"{' and '.join(sorted(files))}: both define {name}; one needs another name" for name, files in
                  sorted(self.types.items()) if len(files) > 1]
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", type=int, nargs="?", const=20, metavar="N", help="print the largest classes")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    options = parser.parse_args()
    tree = Tree(options.root)
    if options.list is not None:
        for (path, name), count in sorted(tree.methods.items(), key=lambda item: -item[1])[:options.list]:
            print(f"{count:4} methods  {name}  {path}")
        for (folder, name), files in tree.several().items():
            print(f"{len(files):4} files    {name}  {' '.join(sorted(files))}")
        return 0
    found = tree.check()
    for line in found:
        print(line)
    print(f"classes: {len(tree.methods)} classes, {len(found)} violations", file=sys.stderr)
    return 1 if found or not tree.methods else 0


if __name__ == "__main__":
    sys.exit(main())
