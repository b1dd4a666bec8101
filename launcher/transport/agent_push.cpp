#include "launcher/transport/agent_push.h"

#include <sys/utsname.h>

#include <array>
#include <fstream>
#include <sstream>

#include <openssl/evp.h>

namespace hvd::launch {
namespace {

constexpr std::size_t kMaxNoise = 64 * 1024;  // bytes that a login shell may print before we give up
constexpr std::string_view kNeed = "HVDRUN-NEED";
constexpr std::string_view kAgent = "HVDRUN-AGENT";
constexpr std::string_view kFail = "HVDRUN-FAIL ";

// One line, no single quote, exclamation mark or backslash: csh takes no newline inside quotes and expands `!` there,
// fish reads backslashes there. So `find` has no negation, and the agent in use is kept young by touch instead: with
// -c, else touch opens it for writing, and who executes it at that moment is told "Text file busy".
//
// u DIR: makes DIR private, or fails when it is not ours to make so; in /tmp another user may have been first.
// f/g:   gives up; g also removes the unfinished file.
// The new file is run once with --version before it gets its final name, so that a mount without exec and a wrong
// processor are found while an error can still be told apart from the agent's own output.
constexpr const char* kScript =
    "umask 077; "
    "f() { echo; echo \"HVDRUN-FAIL $*\"; exit 1; }; "
    "g() { rm -f \"$t\"; f \"$@\"; }; "
    "u() { mkdir -p \"$1\" 2>/dev/null; chmod 700 \"$1\" 2>/dev/null; [ -w \"$1\" ] && "
    "[ -n \"$(find \"$1\" -prune -type d -user \"$(id -u)\" -perm 700 2>/dev/null)\" ]; }; "
    "k=$(uname -m); [ \"$k\" = \"$m\" ] || f \"the node is $k, but this agent is for $m\"; "
    "c=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}; "
    "d=$c/hvdrun; [ -n \"$c\" ] && u \"$d\" || { d=${TMPDIR:-/tmp}/hvdrun-$(id -u); "
    "u \"$d\" || f \"no private directory to put the agent in: tried ${c:-no HOME} and $d\"; }; "
    "a=$d/agent-$s; "
    "if [ -x \"$a\" ] && [ \"$(wc -c <\"$a\")\" -eq \"$n\" ]; then touch -c \"$a\" 2>/dev/null; else "
    "t=$a.tmp.$(uname -n).$$; "
    "find \"$d\" -type f -name \"agent-*\" -mtime +30 -exec rm -f {} + 2>/dev/null; "
    "true >\"$t\" || f \"cannot write to $d\"; "
    "echo; echo HVDRUN-NEED; "
    "head -c \"$n\" >\"$t\" || g \"cannot write to $d\"; "
    "b=$(wc -c <\"$t\"); [ \"$b\" -eq \"$n\" ] || g \"got $b of $n bytes of the agent in $d; is the disk full?\"; "
    "if command -v sha256sum >/dev/null 2>&1; then h=$(sha256sum <\"$t\"); "
    "[ \"${h%% *}\" = \"$s\" ] || g \"the agent arrived damaged in $d\"; fi; "
    "chmod 700 \"$t\" || g \"cannot chmod in $d\"; "
    "\"$t\" --version </dev/null >/dev/null 2>&1; r=$?; "
    "[ $r -ne 126 ] && [ $r -ne 127 ] || "
    "g \"cannot execute programs in $d (mounted noexec?); set XDG_CACHE_HOME on the node to a directory that allows "
    "it\"; "
    "mv -f \"$t\" \"$a\" || g \"cannot write to $d\"; fi; "
    "echo; echo HVDRUN-AGENT; exec \"$a\" serve";

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += kHex[digest[i] >> 4];
    hex += kHex[digest[i] & 15];
  }
  return hex;
}

std::string script_for(const AgentImage& image) {
  return "s=" + image.sha256 + "; n=" + std::to_string(image.bytes.size()) + "; m=" + image.machine + "; " + kScript;
}

}  // namespace

Result<AgentImage> load_agent_image(const std::string& path) {
  const std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  AgentImage image{std::move(text).str(), "", ""};
  if (!in || image.bytes.empty()) {
    return Error(Code::kNotFound, "cannot read the agent executable '" + path +
                                      "' that is to run on the nodes; is "
                                      "hvdrun installed completely?");
  }
  image.sha256 = sha256_hex(image.bytes);
  utsname name{};
  ::uname(&name);
  image.machine = name.machine;
  return image;
}

std::string agent_start_command(const AgentImage& image) {
  return "exec sh -c '" + script_for(image) + "'";
}

std::string agent_start_line(const AgentImage& image) {
  return script_for(image) + "\n";
}

AgentGreeting::Event AgentGreeting::fail(std::string why) {
  failure_ = std::move(why);
  return Event::kFailed;
}

AgentGreeting::Event AgentGreeting::next() {
  if (!failure_.empty()) {
    return Event::kFailed;
  }
  for (auto end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n')) {
    const std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    const Event event = read_line(line);
    if (event != Event::kNone) {
      return event;
    }
  }
  if (skipped_ + buffer_.size() > kMaxNoise) {
    return fail(
        "the login shell printed more than 64 KiB before the agent started; what ~/.profile or ~/.bashrc print "
        "must be for interactive shells only");
  }
  return Event::kNone;
}

AgentGreeting::Event AgentGreeting::read_line(std::string_view line) {
  if (line == kNeed) {
    return Event::kNeed;
  }
  if (line == kAgent) {
    return Event::kAgent;
  }
  if (line.starts_with(kFail)) {
    return fail(std::string(line.substr(kFail.size())));
  }
  if (line == std::string(kNeed) + "\r" || line == std::string(kAgent) + "\r") {
    return fail("the way to the node goes through a terminal, which changes bytes; leave out -t or --tty");
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
