"""The inside of a lab: its switch process and its hosts. scripts/lab starts it and speaks to it.

A lab is one process tree in namespaces of its own. Its first process, the switch, is process 1 of a PID namespace and
owns the network namespace with the bridge; each host is a nested set of namespaces whose process 1 only reaps. When the
switch dies, the kernel kills everything below it and drops every mount, link and address with it: there is nothing to
clean up but the state folder. Until scripts/lab has said that the lab is complete, the switch ends itself when
scripts/lab goes away, so an interrupted "up" leaves nothing either.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time

# <sched.h>, <sys/mount.h>, <sys/prctl.h>
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = (
    0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000)
ALL_NAMESPACES = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
# This is the limit of every wait here. It measures nothing, so it is long enough for a busy machine to make its labs.
PATIENCE = 300  # seconds
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PR_SET_PDEATHSIG = 1

SSHD_CONFIG = """\
Port 22
AddressFamily inet
HostKey /run/sshd/host_key
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
LogLevel INFO
Subsystem sftp internal-sftp
"""

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name, *arguments):
    if getattr(_libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def unshare(flags):
    _call("unshare", flags)


def setns(fd, flag):
    _call("setns", fd, flag)


def die_with_parent():
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def mount(source, target, kind=None, flags=0, options=None):
    code = [None if text is None else text.encode() for text in (source, target, kind, options)]
    try:
        _call("mount", code[0], code[1], code[2], ctypes.c_ulong(flags), code[3])
    except OSError as error:
        raise OSError(error.errno, f"mounting {kind or source} on {target}: {os.strerror(error.errno)}") from None


def bind(source, target):
    mount(source, target, None, MS_BIND | MS_REC)


def tmpfs(target, mode):
    os.makedirs(target, exist_ok=True)
    mount("lab", target, "tmpfs", 0, f"mode={mode:o}")


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as out:
        out.write(text)


def tool(*argv, text=None):
    import subprocess  # such imports are made where needed: "lab run" must be quick
    done = subprocess.run(argv, input=text, text=True, capture_output=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise OSError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def tbf(dev, rate_bits):
    """One line for tc -batch. The bucket holds 5 ms of the rate, and at least one large segmented packet."""
    return f"qdisc replace dev {dev} root tbf rate {rate_bits}bit burst {max(rate_bits // 1600, 131072)} latency 50ms\n"


def reap_for_ever():
    """What process 1 of a PID namespace is for. Sleeps in the kernel between two deaths."""
    while True:
        signal.sigwaitinfo({signal.SIGCHLD})
        reap()


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


# --- a host ---------------------------------------------------------------------------------------------------------


def private_folders(home, shares):
    """Folders that a machine has of its own; shares are those inside them that all hosts see all the same."""
    kept = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in shares]
    cgroups = os.open("/sys/fs/cgroup", os.O_PATH | os.O_CLOEXEC) if os.path.isdir("/sys/fs/cgroup") else -1
    mount("proc", "/proc", "proc")
    mount("sysfs", "/sys", "sysfs")  # its /sys/class/net shows this network namespace
    if cgroups >= 0:
        try:
            bind(f"/proc/self/fd/{cgroups}", "/sys/fs/cgroup")
        except OSError:
            pass  # no lab needs it; some containers forbid the bind
    tmpfs("/tmp", 0o1777)
    tmpfs("/run", 0o755)
    tmpfs(os.path.realpath("/dev/shm"), 0o1777)
    tmpfs(home, 0o700)
    for path, fd in kept:
        if os.path.exists(path) and os.path.samestat(os.stat(path), os.stat(fd)):
            continue  # it is below none of the folders above
        os.makedirs(path, exist_ok=True)
        bind(f"/proc/self/fd/{fd}", path)


def private_files(host, plan):
    """Files of /etc that differ from the machine's: bound over them, so that the machine's stay as they are."""
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    lines += [f"{other['addr']} {other['name']}" for other in plan["hosts"]]
    write("/run/lab/hosts", "\n".join(lines) + "\n")
    bind("/run/lab/hosts", "/etc/hosts")
    write("/run/lab/hostname", host["name"] + "\n")
    write("/run/lab/resolv.conf", "")
    for name in ("hostname", "resolv.conf"):  # without a name server an unknown name fails at once
        path = os.path.realpath(f"/etc/{name}")
        if os.path.exists(path):
            bind(f"/run/lab/{name}", path)
    try:
        with open("/etc/shadow") as shadow:
            text = shadow.read()
    except OSError:
        return
    if text.startswith("root:!"):  # a locked account, whose key sshd would refuse as well
        write("/run/lab/shadow", "root:*" + text[text.index(":", 5):], 0o600)
        bind("/run/lab/shadow", "/etc/shadow")


def listening(port):
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def start_sshd(host, plan):
    import subprocess

    os.makedirs("/run/sshd", 0o755)
    write("/run/sshd/host_key", host["key"], 0o600)
    write("/run/sshd/config", SSHD_CONFIG)
    client = next(h for h in plan["hosts"] if h["name"] == plan["launcher"])
    write(f"{plan['home']}/.ssh/authorized_keys", client["public"], 0o600)
    os.chmod(f"{plan['home']}/.ssh", 0o700)
    daemon = subprocess.Popen(
        [plan["sshd"], "-D", "-e", "-f", "/run/sshd/config"], cwd="/", stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, start_new_session=True)
    deadline = time.monotonic() + PATIENCE
    while not listening(22):
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise OSError(f"sshd of {host['name']} does not listen; see the lab's log")
        time.sleep(0.005)
    return daemon.pid


def write_client_files(host, plan):
    ssh = f"{plan['home']}/.ssh"
    write(f"{ssh}/id_ed25519", host["key"], 0o600)
    write(f"{ssh}/id_ed25519.pub", host["public"])
    known = [f"{h['name']},{h['addr']} {' '.join(h['public'].split()[:2])}\n" for h in plan["hosts"] if h["sshd"]]
    write(f"{ssh}/known_hosts", "".join(known), 0o600)
    # A busy machine takes long for a key exchange, which is not what the lab tests.
    write(f"{ssh}/config", "ConnectTimeout 60\n", 0o600)
    os.chmod(ssh, 0o700)


def host_main(host, plan, link_is_there, tell):
    """Process 1 of a host: makes the machine, says "ready", reaps."""
    name = host["name"].encode()
    _call("sethostname", name, len(name))
    private_folders(plan["home"], plan["shares"])
    private_files(host, plan)
    os.read(link_is_there, 1)
    tool("ip", "-batch", "-", text=f"link set lo up\naddr add {host['addr']}/16 dev eth0\nlink set eth0 up\n")
    if host["rate"]:
        tool("tc", "-batch", "-", text=tbf("eth0", host["rate"]))
    sshd = 0
    if host["sshd"]:
        sshd = start_sshd(host, plan)
    else:
        write_client_files(host, plan)
    tell({"name": host["name"], "ready": True, "sshd": sshd})


# --- the switch -----------------------------------------------------------------------------------------------------


def fork_into(flags, main, report_pid):
    """Runs main in new namespaces. A PID namespace needs two forks; the one between reports the pid and ends."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return
    try:
        unshare(flags)
        child = os.fork()
        if child:
            report_pid(child)
            os._exit(0)
        main()
    except BaseException as error:  # must not return into the caller's stack: two processes would run it
        print(f"lab: {error}", file=sys.stderr, flush=True)
    os._exit(1)


def make_keys(plan):
    """ed25519 key pairs, all at once: one for each sshd, one for the user. Made in here, so that they end with us."""
    import subprocess

    def path(host):
        return f"{plan['state']}/{host['name']}.key"

    making = [subprocess.Popen(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"root@{host['name']}", "-f",
                                path(host)], stdin=subprocess.DEVNULL) for host in plan["hosts"]]
    if any([process.wait() for process in making]):
        raise OSError("ssh-keygen failed")
    for host in plan["hosts"]:
        with open(path(host)) as private, open(path(host) + ".pub") as public:
            host["key"], host["public"] = private.read(), public.read()
        os.unlink(path(host))
        os.unlink(path(host) + ".pub")


def switch_main(plan, control, report):
    """Process 1 of the lab: makes the bridge and the hosts, reports, waits for "go", reaps."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc")
    mount("sysfs", "/sys", "sysfs")
    make_keys(plan)
    news_out, news_in = os.pipe()
    gates = {}

    def tell(message):
        os.write(news_in, (json.dumps(message) + "\n").encode())

    for host in plan["hosts"]:
        there, gates[host["name"]] = os.pipe()

        def main(host=host, there=there):
            try:
                host_main(host, plan, there, tell)
            except Exception as error:
                tell({"name": host["name"], "error": str(error)})
                os._exit(1)
            for fd in (there, news_in, news_out, control, report, *gates.values()):
                try:
                    os.close(fd)
                except OSError:
                    pass
            reap_for_ever()

        fork_into(ALL_NAMESPACES, main, lambda pid, host=host: tell({"name": host["name"], "pid": pid}))

    pids, ready = {}, {}
    news = _Lines(news_out)

    def listen_until(done):
        while not done():
            got = select.select([news, control], [], [], PATIENCE)[0]
            if control in got:
                abandoned(plan)
            if not got:
                raise OSError(f"a host of the lab did not become ready in {PATIENCE} s")
            message = json.loads(news.readline())
            if "error" in message:
                raise OSError(f"{message['name']}: {message['error']}")
            (pids if "pid" in message else ready)[message["name"]] = message

    listen_until(lambda: len(pids) == len(plan["hosts"]))
    links = "link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\nlink set br0 up\nlink set lo up\n"
    shaping = ""
    for host in plan["hosts"]:
        name = host["name"]
        links += f"link add {name} type veth peer name eth0 netns {pids[name]['pid']}\nlink set {name} master br0 up\n"
        shaping += tbf(name, host["rate"]) if host["rate"] else ""
    tool("ip", "-batch", "-", text=links)
    if shaping:
        tool("tc", "-batch", "-", text=shaping)
    for gate in gates.values():
        os.write(gate, b"1")
    listen_until(lambda: len(ready) == len(plan["hosts"]))
    wait_for_ports(plan)

    answer = {name: {"pid": pids[name]["pid"], "sshd": ready[name]["sshd"]} for name in pids}
    os.write(report, (json.dumps(answer) + "\n").encode())
    if os.read(control, 1) != b"g":
        abandoned(plan)
    for fd in (news_in, news_out, control, report, *gates.values()):
        os.close(fd)
    reap()
    reap_for_ever()


def remove_tree(folder):
    """A folder with all in it; nothing, where something is mounted in it, which rmtree would empty."""
    import shutil  # see tool

    with open("/proc/self/mountinfo") as mounts:
        if any((line.split()[4] + "/").startswith(folder + "/") for line in mounts):
            print(f"lab: {folder} stays, since something is mounted there", file=sys.stderr)
            return
    shutil.rmtree(folder, ignore_errors=True)


def abandoned(plan):
    """scripts/lab went away before the lab was complete. Ending this process ends all of it."""
    remove_tree(plan["state"])
    os._exit(1)


class _Lines:
    """Lines of a pipe without read-ahead, so that select() tells the truth."""

    def __init__(self, fd):
        self._fd = fd

    def fileno(self):
        return self._fd

    def readline(self):
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(self._fd, 1)
            if not byte:
                raise OSError("a host of the lab ended while it was made")
            line += byte
        return line.decode()


def wait_for_ports(plan):
    """A bridge port forwards only once the kernel's link watch has seen the carrier; until then packets are lost."""
    deadline = time.monotonic() + PATIENCE
    for host in plan["hosts"]:
        path = f"/sys/class/net/{host['name']}/brport/state"
        while open(path).read().strip() != "3":  # BR_STATE_FORWARDING
            if time.monotonic() > deadline:
                raise OSError(f"the bridge does not forward to {host['name']}")
            time.sleep(0.005)
