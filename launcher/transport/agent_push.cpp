#include "launcher/transport/agent_push.h"

#include <algorithm>

namespace hvd::launch {
namespace {

constexpr std::size_t kMaxNoise = 64 * 1024;  // bytes that a login shell may print before we give up
constexpr std::size_t kMaxProcessor = 64;     // bytes of a processor's name; the node decides what it says
constexpr std::string_view kNeed = "HVDRUN-NEED";
constexpr std::string_view kAgent = "HVDRUN-AGENT";
constexpr std::string_view kFail = "HVDRUN-FAIL ";

// One line, no single quote, exclamation mark or backslash: csh takes no newline inside quotes and expands `!` there,
// fish reads backslashes there. So `find` has no negation, and the agent in use is kept young by touch instead: with
// -c, else touch opens it for writing, and who executes it at that moment is told "Text file busy".
//
// Many nodes may share one home directory and run this at once. A name that an agent was started from is never removed
// or given to another file while it may be in use: over NFS, a process that runs the old file dies of that, hours
// later. So the first node to link its file to the name wins, and the others use that file. A damaged file stays where
// it is until it is old, and the next name is used. A name is taken by renaming only where links cannot be made.
//
// f/g:   gives up; g also removes the unfinished file, i does so on a signal.
// v DIR: DIR is a directory of ours with the rights 700. `stat` tells, else `find`, which images of Red Hat and Amazon
//        lack.
// u DIR: makes DIR private, or fails when it is not ours to make so; in /tmp another user may have been first. Under a
//        setgid directory it is born setgid, and 700 alone would leave that.
// y F:   F is the agent: 0; it is not: 1; this node has no sha256sum to tell: 2.
// o:     the agent $a is there, and whole. A name and a size are not enough: after a power failure a file may be zeros.
// p DIR: finds the agent in DIR, or a file $t that is ours alone and that can hold and run it: tried with a program of
//        one line, and with as many zeros, while there is another place to go. x says why not.
// e is the login's umask, which the ranks get.
// The new file is run once with --version before it gets its final name, so that what lets scripts run but not this
// (another processor, a security policy) is found while an error can still be told apart from the agent's own output.
constexpr const char* kScript =
    "e=$(umask); umask 077; t=; w=; "
    "f() { echo; echo \"HVDRUN-FAIL $*\"; exit 1; }; "
    "g() { rm -f \"$t\"; f \"$@\"; }; "
    "i() { rm -f \"$t\"; exit 1; }; trap i HUP INT PIPE TERM; "
    "v() { [ \"$(stat -c %u:%f \"$1\")\" = \"$(id -u):41c0\" ] || "
    "[ -n \"$(find \"$1\" -prune -type d -user \"$(id -u)\" -perm 700)\" ]; }; "
    "u() { mkdir -p \"$1\"; [ -h \"$1\" ] || chmod u=rwx,go=,g-s \"$1\"; [ -w \"$1\" ] && v \"$1\"; }; "
    "y() { command -v sha256sum >/dev/null 2>&1 || return 2; h=$(sha256sum <\"$1\"); [ \"${h%% *}\" = \"$s\" ]; }; "
    "o() { [ -x \"$a\" ] && [ \"$(wc -c <\"$a\")\" -eq \"$n\" ] || return 1; y \"$a\"; "
    "case $? in 0) ;; 1) return 1;; *) \"$a\" --version </dev/null >/dev/null 2>&1;; esac; }; "
    "x() { w=\"$w$d $*; \"; rm -f \"$t\"; t=; return 1; }; "
    "p() { d=$1; u \"$d\" || x is not a private directory || return 1; "
    "for a in \"$d/agent-$s\" \"$d/agent-$s.2\" \"$d/agent-$s.3\"; do o && return 0; [ -e \"$a\" ] || break; done; "
    "find \"$d\" -type f \"(\" -name \"agent-*\" -mtime +30 -o -name \"agent-*.tmp.*\" -mtime +0 \")\" "
    "-exec rm -f {} +; "
    "t=$(mktemp \"$a.tmp.XXXXXX\") && echo exit 7 >\"$t\" && chmod 700 \"$t\" || x cannot be written to || return 1; "
    "\"$t\" </dev/null >/dev/null; [ $? -eq 7 ] || x \"lets no program run (mounted noexec?)\" || return 1; "
    "head -c \"$n\" /dev/zero >\"$t\"; [ \"$(wc -c <\"$t\")\" -eq \"$n\" ] || x \"has no room for $n bytes\"; }; "
    "[ -n \"$s\" ] || f \"the node is $k, but this agent is for $m\"; "
    "c=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}; [ -n \"$c\" ] || w=\"HOME is not set; \"; "
    "[ -n \"$c\" ] && p \"$c/hvdrun\" 2>/dev/null || p \"${TMPDIR:-/tmp}/hvdrun-$(id -u)\" 2>/dev/null || "
    "f \"no place to put the agent: ${w}set XDG_CACHE_HOME on the node to a directory that can hold it\"; "
    "if [ -n \"$t\" ]; then echo; echo \"HVDRUN-NEED$q\"; "
    "head -c \"$n\" >\"$t\" || g \"cannot write to $d; is the disk full?\"; "
    "b=$(wc -c <\"$t\"); [ \"$b\" -eq \"$n\" ] || g \"got $b of $n bytes of the agent in $d; is the disk full?\"; "
    "y \"$t\"; [ $? -ne 1 ] || g \"the agent arrived damaged in $d\"; "
    "\"$t\" --version </dev/null >/dev/null 2>&1; r=$?; "
    "[ $r -ne 126 ] && [ $r -ne 127 ] || "
    "g \"cannot execute programs in $d (a security policy?); set XDG_CACHE_HOME on the node to a directory that allows "
    "it\"; "
    "ln \"$t\" \"$a\" 2>/dev/null || o 2>/dev/null || mv -f \"$t\" \"$a\" || g \"cannot write to $d\"; rm -f \"$t\"; "
    "else touch -c \"$a\" 2>/dev/null; fi; "
    "umask $e; echo; echo HVDRUN-AGENT; exec \"$a\" serve";

// The script, for the image that fits the node's processor. Where that is not the first, the script asks for it by
// name.
std::string script_for(const AgentImages& images) {
  std::string cases;
  std::string machines;
  for (const AgentImage& image : images.all) {
    cases += image.machine + ") s=" + image.sha256 + "; n=" + std::to_string(image.bytes.size()) +
             (cases.empty() ? "" : "; q=\" $k\"") + ";; ";
    machines += (machines.empty() ? "" : " or ") + image.machine;
  }
  return "k=$(uname -m); s=; q=; m=\"" + machines + "\"; case \"$k\" in " + cases + "esac; " + kScript;
}

}  // namespace

std::string agent_start_command(const AgentImages& images) {
  return "exec sh -c '" + script_for(images) + "'";
}

std::string agent_start_line(const AgentImages& images) {
  return script_for(images) + "\n";
}

AgentGreeting::Event AgentGreeting::fail(std::string why) {
  failure_ = std::move(why);
  return Event::kFailed;
}

AgentGreeting::Event AgentGreeting::next() {
  if (!failure_.empty()) {
    return Event::kFailed;
  }
  std::size_t at = 0;
  Event event = Event::kNone;
  while (event == Event::kNone && skipped_ <= kMaxNoise) {
    const std::size_t end = buffer_.find('\n', at);
    if (end == std::string::npos) {
      break;
    }
    event = read_line(std::string_view(buffer_).substr(at, end - at));
    at = end + 1;
  }
  buffer_.erase(0, at);  // once: a shell that prints empty lines alone would else cost a copy of all for each
  if (event != Event::kNone) {
    return event;
  }
  if (skipped_ + buffer_.size() > kMaxNoise) {
    return fail(
        "the login shell printed more than 64 KiB before the agent started; what ~/.profile or ~/.bashrc print "
        "must be for interactive shells only");
  }
  return Event::kNone;
}

AgentGreeting::Event AgentGreeting::read_line(std::string_view line) {
  const bool is_need = line.substr(0, line.find_first_of(" \r")) == kNeed;
  if ((is_need && line.ends_with('\r')) || line == std::string(kAgent) + "\r") {
    return fail("the way to the node goes through a terminal, which changes bytes; leave out -t or --tty");
  }
  if (is_need) {
    wanted_ = line.substr(std::min(line.size(), kNeed.size() + 1), kMaxProcessor);
    return Event::kNeed;
  }
  if (line == kAgent) {
    return Event::kAgent;
  }
  if (line.starts_with(kFail)) {
    return fail(std::string(line.substr(kFail.size())));
  }
  skipped_ += line.size() + 1;
  if (!line.empty()) {
    noise_ = line.substr(0, 200);
  }
  return Event::kNone;
}

std::string AgentGreeting::last_noise() const {
  return buffer_.empty() ? noise_ : buffer_.substr(0, 200);
}

}  // namespace hvd::launch
