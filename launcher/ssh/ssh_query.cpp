#include "launcher/ssh/ssh_query.h"

#include <utility>

namespace hvd::launch {
namespace {

constexpr std::size_t kMaxOutput = 256 * 1024;  // `ssh -G` prints about 5 KiB; anything longer is not ssh

}  // namespace

Result<void> SshQuery::start(const std::vector<std::string>& argv, const std::vector<std::string>& environment) {
  SpawnOptions program;
  program.argv = argv;
  program.environment = environment;
  Child::Handlers handlers;
  handlers.on_output = [this](Child::Stream stream, std::string_view text) { on_output(stream, text); };
  handlers.on_over = [this](const std::optional<ExitStatus>& status, const std::string&) { finish(status); };
  auto child = Child::start(loop_, std::move(program), Child::Options(), std::move(handlers));
  if (child.ok()) {
    child_ = std::move(child).value();
  } else if (child.error().code() == Code::kNotFound) {
    scope_.post([this] { finish(std::nullopt); });
  } else {
    return child.error().with_context("cannot run 'ssh -G'");
  }
  return {};
}

void SshQuery::on_output(Child::Stream stream, std::string_view text) {
  std::string& all = texts_[static_cast<std::size_t>(stream)];
  if (all.size() + text.size() <= kMaxOutput) {
    all += text;
  } else {
    child_->close(stream);
  }
}

void SshQuery::finish(const std::optional<ExitStatus>& status) {
  Answer answer;
  answer.has_program = child_ != nullptr;
  answer.exit_code = status ? status->shell_code() : 0;
  answer.output = std::move(texts_[0]);
  answer.errors = std::move(texts_[1]);
  const Done done = std::exchange(done_, nullptr);
  done(std::move(answer));
}

}  // namespace hvd::launch
