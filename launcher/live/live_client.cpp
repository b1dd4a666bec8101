#include "launcher/live/live_client.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <utility>

#include <time.h>

#include "runtime/io/socket.h"

namespace hvd::launch {
namespace {

// A running hvdrun answers at once, unless it is stopped or the machine is very busy.
constexpr auto kAnswerTime = std::chrono::seconds(5);

Result<LiveJob> ask_job(const std::string& socket) {
  HVD_TRY_ASSIGN(LiveAnswer answer, LiveAnswer::ask(socket, LiveMessage::kAskJob, ""));
  HVD_TRY_ASSIGN(const std::optional<Frame> frame, answer.next(Deadline::after(kAnswerTime)));
  if (!frame || frame->type != static_cast<std::uint16_t>(LiveMessage::kJob)) {
    return Error(Code::kProtocol, "a running job does not say what it is");
  }
  return LiveJob::decode(frame->body);
}

bool is_named(const LiveJob& job, const std::string& reference) {
  return job.id == reference || job.name == reference || job.uuid == reference || std::to_string(job.pid) == reference;
}

// Returns when the job has made its socket, which is when it began.
std::string time_of(const std::string& socket) {
  struct stat status{};
  tm utc{};
  std::array<char, 64> text{};
  if (::stat(socket.c_str(), &status) != 0 || ::gmtime_r(&status.st_mtim.tv_sec, &utc) == nullptr) {
    return "";
  }
  return std::string(text.data(), ::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc));
}

// Leaves out line ends, what a terminal would obey, and the end of a long command, so that each job has one line.
std::string shortened(std::string command) {
  constexpr std::size_t kMost = 60;
  std::replace_if(command.begin(), command.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  if (command.size() <= kMost) {
    return command;
  }
  return command.substr(0, std::min(command.rfind(' ', kMost), kMost)) + " ...";
}

// Returns the id of the job whose socket this is, as LiveFolder::socket_of() has made its name.
std::string id_of(const std::string& socket) {
  const std::string name = socket.substr(socket.rfind('/') + 1);
  return name.substr(0, name.find('.'));
}

// Returns a line for each job: a user knows it by its command and its start, since its id is shown nowhere else.
std::string list_of(const std::vector<FoundJob>& jobs) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(jobs.size(), kShown); ++i) {
    const LiveJob& job = jobs[i].job;
    const std::string since = jobs[i].since.empty() ? "" : ", since " + jobs[i].since;
    text += "\n  " + job.id +
            (jobs[i].is_silent ? "  does not answer" + since
                               : (job.name.empty() ? "" : " (" + job.name + ")") + "  pid " + std::to_string(job.pid) +
                                     since + ": " + shortened(job.command));
  }
  return text + (jobs.size() > kShown ? "\n  ..." : "");
}

}  // namespace

Result<std::vector<FoundJob>> running_jobs(const LiveFolder& folder) {
  HVD_TRY_ASSIGN(const std::vector<std::string> sockets, folder.sockets());
  std::vector<FoundJob> jobs;
  for (const std::string& socket : sockets) {
    auto job = ask_job(socket);
    if (job.ok()) {
      jobs.push_back({std::move(job).value(), socket, time_of(socket)});
    } else if (job.error().sys_errno() == ECONNREFUSED) {
      ::unlink(socket.c_str());  // its hvdrun was killed
    } else if (job.error().code() == Code::kTimeout) {
      FoundJob silent{LiveJob(), socket, time_of(socket), true};
      silent.job.id = id_of(socket);
      jobs.push_back(std::move(silent));
    }
  }
  return jobs;
}

Result<std::vector<FoundJob>> running_jobs(const std::vector<std::string>& environment) {
  HVD_TRY_ASSIGN(std::vector<FoundJob> jobs, running_jobs(LiveFolder::of(environment)));
  Result<void> outcome;
  for (const LiveFolder& folder : LiveFolder::others_of(environment)) {
    auto more = running_jobs(folder);
    if (more.ok()) {
      std::move(more.value().begin(), more.value().end(), std::back_inserter(jobs));
    } else if (outcome.ok()) {
      outcome = more.error();  // in /tmp anybody may have made it, which must not hide the jobs
    }
  }
  return outcome.ok() || !jobs.empty() ? Result<std::vector<FoundJob>>(std::move(jobs))
                                       : Result<std::vector<FoundJob>>(outcome.error());
}

Result<FoundJob> choose_job(const std::vector<FoundJob>& jobs, const std::string& reference) {
  if (jobs.empty()) {
    return Error(Code::kNotFound, (reference.empty() ? "no job of yours runs on this machine"
                                                     : "no job '" + reference + "' of yours runs on this machine") +
                                      std::string("; ask on the machine where its hvdrun runs, as its user"));
  }
  std::vector<FoundJob> meant;
  std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(meant),
               [&reference](const FoundJob& found) { return reference.empty() || is_named(found.job, reference); });
  if (meant.empty()) {
    std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(meant),
                 [&reference](const FoundJob& found) { return found.job.id.starts_with(reference); });
  }
  if (meant.size() == 1 && meant.front().is_silent) {
    return Error(Code::kTimeout, "job " + meant.front().job.id +
                                     " does not answer; is its hvdrun stopped, as by Ctrl-Z? Then fg in its shell, or "
                                     "kill -CONT with its process number, lets it go on");
  }
  if (meant.size() == 1) {
    return meant.front();
  }
  if (meant.empty()) {
    return Error(Code::kNotFound, "no job '" + reference + "' runs; those that do:" + list_of(jobs));
  }
  return Error(Code::kInvalid, (reference.empty() ? std::to_string(meant.size()) + " jobs run"
                                                  : "several jobs are called '" + reference + "'") +
                                   "; name one of them:" + list_of(meant));
}

Result<LiveAnswer> LiveAnswer::ask(const std::string& socket, LiveMessage question, std::string_view body) {
  HVD_TRY_ASSIGN(Fd connection, connect_unix(socket, Deadline::after(kAnswerTime)));
  HVD_TRY_ASSIGN(const uid_t uid, peer_uid(connection.get()));
  if (uid != ::geteuid() && ::geteuid() != 0) {
    return Error(Code::kInvalid, "the job at " + socket + " belongs to another user");
  }
  const std::string frame = make_frame(kLiveFrames, static_cast<std::uint16_t>(question), body);
  HVD_TRY(send_all(connection.get(), Bytes(reinterpret_cast<const std::uint8_t*>(frame.data()), frame.size()),
                   Deadline::after(kAnswerTime)));
  return LiveAnswer(std::move(connection));
}

int LiveAnswer::pid() const {
  const auto pid = peer_pid(connection_.get());
  return pid.ok() ? pid.value() : 0;
}

Result<std::optional<Frame>> LiveAnswer::next(Deadline deadline) {
  for (;;) {
    HVD_TRY_ASSIGN(std::optional<Frame> frame, decoder_.next());
    if (frame) {
      if (frame->type == static_cast<std::uint16_t>(LiveMessage::kRefused)) {
        return Error(Code::kInvalid, frame->body);
      }
      const bool is_over = frame->type == static_cast<std::uint16_t>(LiveMessage::kOver);
      return is_over ? std::optional<Frame>() : std::move(frame);
    }
    pollfd ready{connection_.get(), POLLIN, 0};
    const int polled = ::poll(&ready, 1, deadline.poll_ms());
    if (polled < 0 && errno != EINTR) {
      return Error::from_errno("cannot wait for the job's answer (poll)");
    }
    if (polled == 0 && deadline.has_passed()) {
      return Error(Code::kTimeout, "the job does not answer; is its hvdrun stopped?");
    }
    std::array<std::uint8_t, 65536> bytes{};
    const ssize_t count = polled > 0 ? ::read(connection_.get(), bytes.data(), bytes.size()) : -1;
    if (count == 0 || (count < 0 && polled > 0 && errno != EAGAIN && errno != EINTR)) {
      return Error(Code::kLostPeer, "the job has ended");
    }
    if (count > 0) {
      decoder_.feed(Bytes(bytes.data(), static_cast<std::size_t>(count)));
    }
  }
}

}  // namespace hvd::launch
