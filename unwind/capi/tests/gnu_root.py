"""A root directory that has gcc, GNU binutils and the C library of this Debian, with what these depend on, and nothing else: programs are run
in it by chroot. Files are those that the packages list."""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

# Bytes of a file that is rather mounted than copied.
MOST_COPIED = 1 << 18
PACKAGES = ["gcc", "binutils", "libc6-dev"]
LLVM = re.compile(r"clang|llvm|\blld\b|lld-|rust", re.I)


class Unavailable(Exception):
    """This machine lets nobody make such a root, and why."""


def dependencies():
    """The packages with everything that they depend on, as far as it is installed."""
    listed = _output("dpkg-query", "-W", "-f", "${Package}\t${Status}\t${Provides}\t${Pre-Depends}, ${Depends}\n")
    depends, provides = {}, {}
    for line in listed.splitlines():
        name, status, provided, needed = line.split("\t")
        if status.endswith(" installed"):
            depends[name] = _names(needed)
            provides.update({other: name for other in _names(provided)})
    found, open_ = set(), list(PACKAGES)
    while open_:
        name = open_.pop()
        name = name if name in depends else provides.get(name)
        if name and name not in found:
            found.add(name)
            open_ += depends[name]
    missing = set(PACKAGES) - found
    if missing:
        raise Unavailable(f"not installed as packages: {' '.join(sorted(missing))}")
    return found


def _names(field):
    """Package names of a field of dependencies, alternatives side by side."""
    return [re.sub(r"[(:\s].*", "", part.strip()) for part in re.split(r"[,|]", field) if part.strip()]


def _output(*command):
    try:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not there: its lists of files say what belongs to gcc") from None


class Root:
    """The directory, and how programs come to run in it. To be used as a context."""

    def __init__(self, where):
        self.where = Path(where)
        (self.where / "proc").mkdir(parents=True)
        self.mounted = []
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            # Where they are parts of /usr, the packages' lists do not say so.
            if Path("/", name).is_symlink():
                leads_to = os.readlink(Path("/", name)).lstrip("/")
                (self.where / leads_to).mkdir(parents=True, exist_ok=True)
                (self.where / name).symlink_to(leads_to)
        for path in _output("dpkg", "-L", *sorted(dependencies())).splitlines():
            if path.startswith("/") and not path.startswith(("/usr/share/doc", "/usr/share/man", "/usr/share/locale")):
                self._take(Path(path))
        (self.where / "tmp").mkdir()
        self.holder, self.options = self._namespace()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.holder.stdin.close()
        self.holder.wait()

    def _namespace(self):
        """A process that waits in a namespace of mounts where the root has /proc, as root or as root of a namespace of users, and how to
        enter it. One for all programs: another one's files have names in the same namespace alone."""
        held = '''mount --rbind /proc "$0/proc" || exit
            while test $# -gt 0; do mount --bind "$1" "$2" || exit; shift 2; done
            chroot "$0" /nothing; test $? = 127 && echo ready && exec cat'''
        tried = []
        for unshare, options in (["--mount"], ["--mount"]), (["--map-root-user", "--mount"], ["--user", "--preserve-credentials", "--mount"]):
            try:
                holder = subprocess.Popen(["unshare", *unshare, "sh", "-c", held, str(self.where), *self.mounted], stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            except FileNotFoundError as error:
                raise Unavailable(f"{error.filename} is not there") from None
            if holder.stdout.readline() == "ready\n":
                return holder, options
            tried.append(holder.communicate()[1].strip())
        raise Unavailable(f"neither root nor a namespace of users: {'; '.join(tried)}")

    def _take(self, path):
        to = self.where / path.relative_to("/")
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return
        # By the other name of the same directory, as /lib and /usr/lib.
        if to.exists() or to.is_symlink():
            return
        if stat.S_ISLNK(mode):
            to.parent.mkdir(parents=True, exist_ok=True)
            to.symlink_to(os.readlink(path))
        elif stat.S_ISDIR(mode):
            to.mkdir(parents=True, exist_ok=True)
        elif stat.S_ISREG(mode):
            to.parent.mkdir(parents=True, exist_ok=True)
            self._put(path, to)

    def _put(self, path, to):
        """The same file where this user may link it, else a small one copied and a large one mounted."""
        try:
            os.link(path, to)
        except OSError:
            if path.stat().st_size < MOST_COPIED:
                shutil.copy2(path, to)
            else:
                to.touch()
                self.mounted += [str(path), str(to)]

    def command(self, *command):
        """What runs `command` in the root. It stays one process with one number."""
        return ["nsenter", "--target", str(self.holder.pid), *self.options, "chroot", str(self.where), *map(str, command)]

    def of_llvm(self):
        """Files that are not GNU's."""
        return of_llvm(self.where)


def of_llvm(where):
    """Files below that belong to LLVM, or to Rust, whose compiler has it within."""
    return sorted(str(Path(folder, name)) for folder, folders, files in os.walk(where) for name in folders + files if LLVM.search(name))
