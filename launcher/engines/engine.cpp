#include "launcher/engines/engine.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/process/descendants.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// This is enough for what an engine prints when it cannot even begin.
constexpr std::size_t kMostLines = 100;
constexpr std::size_t kMostLineBytes = 8192;
constexpr std::size_t kMostQuotedLines = 8;
// SIGKILL follows SIGTERM by so much: mpirun gives its processes one second, on hosts that it must ask first.
constexpr auto kPatience = std::chrono::seconds(5);

bool says_nothing(const std::string& line) {
  return line.find_first_not_of(" \t-=") == std::string::npos;
}

}  // namespace

std::string first_paragraph(const std::vector<std::string>& lines) {
  std::string text;
  std::size_t count = 0;
  for (const std::string& line : lines) {
    if (!says_nothing(line)) {
      add_to_list(text, trimmed(line), " ");
      if (++count == kMostQuotedLines) {
        break;
      }
    } else if (!text.empty() && !text.ends_with(':')) {
      break;
    }
  }
  return text;
}

Result<std::unique_ptr<EngineOrphans>> EngineOrphans::adopt() {
  HVD_TRY(become_subreaper());
  return std::unique_ptr<EngineOrphans>(new EngineOrphans());
}

EngineOrphans::~EngineOrphans() {
  // It is not SIGKILL, because an agent that the engine has left must end its ranks first.
  signal_children(children_of_job(), SIGTERM);
}

std::string Engine::first_words() const {
  return first_paragraph(lines_);
}

Result<std::vector<std::string>> Engine::words() {
  std::vector<std::string> words = command_.argv;
  if (command_.hosts.empty()) {
    return words;
  }
  // It is in memory, and read under the name that it has among our files: so nothing is left of it, however we end.
  hosts_file_ = Fd(::memfd_create("hvdrun-hosts", MFD_CLOEXEC));
  if (!hosts_file_.is_open() || !write_all(hosts_file_.get(), command_.hosts)) {
    return Error::from_errno("cannot write the names of the hosts for " + command_.name);
  }
  const std::string path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(hosts_file_.get());
  for (std::string& word : words) {
    if (word.ends_with(kHostsFile)) {
      word.replace(word.size() - kHostsFile.size(), kHostsFile.size(), path);
    }
  }
  return words;
}

Result<void> Engine::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  RshProcess::Handlers process;
  process.on_output = [this](Bytes bytes) { take(partial_output_, as_text(bytes)); };
  process.on_errors = [this](std::string_view text) { take(partial_errors_, text); };
  process.on_taken = [] {};
  process.on_over = [this](const std::optional<ExitStatus>& status, const std::string&) { on_over(status); };
  HVD_TRY_ASSIGN(const std::vector<std::string> argv, words());
  auto started = RshProcess::start(loop_, ladder_, argv, command_.environment, command_.open_files, std::move(process));
  if (!started.ok()) {
    return started.error().with_context("cannot start " + command_.name);
  }
  process_ = std::move(started).value();
  process_->set_patience(kPatience);
  if (!command_.input.empty()) {
    process_->write(command_.input);
  }
  process_->close_input();  // a rank's input is empty, as everywhere
  return {};
}

void Engine::take(std::string& partial, std::string_view text) {
  partial += text;
  std::size_t begin = 0;
  for (std::size_t end = partial.find('\n'); end != std::string::npos; end = partial.find('\n', begin)) {
    take_line(partial.substr(begin, end - begin));
    begin = end + 1;
  }
  partial.erase(0, begin);
  if (partial.size() > kMostLineBytes) {
    take_line(std::exchange(partial, ""));
  }
}

void Engine::take_line(std::string line) {
  if (!line.empty() && line.back() == '\r') {
    line.pop_back();
  }
  if (!command_.noise.empty() && line.find(command_.noise) != std::string::npos) {
    return;
  }
  if (lines_.size() < kMostLines) {
    lines_.push_back(line);
  }
  if (!says_nothing(line)) {
    handlers_.on_line(line);
  }
}

void Engine::on_over(const std::optional<ExitStatus>& status) {
  for (std::string* partial : {&partial_output_, &partial_errors_}) {
    if (!partial->empty()) {
      take_line(std::exchange(*partial, ""));
    }
  }
  process_.reset();
  std::string all;
  for (const std::string& line : lines_) {
    all += line + "\n";
  }
  const EngineFailure failure = command_.failure_in(all);
  const std::string words = first_words();
  handlers_.on_over(Error(failure.code, command_.name + " " + (status ? status->text() : "has closed its output") +
                                            (words.empty() ? "" : "; it said: " + words) +
                                            (failure.advice.empty() ? "" : "; " + failure.advice)));
}

}  // namespace hvd::launch
