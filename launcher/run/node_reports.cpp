#include "launcher/run/node_reports.h"

#include <unistd.h>

#include <utility>

#include "launcher/job/hidden_texts.h"
#include "launcher/transport/transport_choice.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostUtf8Bytes = 4;  // of a character, which is cut as a whole

// A folder or a script that another host lacks and this one has: --sync would bring it there.
Error with_sync_hint(const JobSpec& spec, const HostSpec& host, const StartFailedMessage& failed) {
  const bool is_in_folder = !failed.place.empty() && !spec.cwd.empty() &&
                            (spec.cwd == "/" || (failed.place + "/").starts_with(spec.cwd + "/"));
  return is_in_folder && failed.why.code() == Code::kNotFound && spec.sync_dir.empty() && !is_here(host) &&
                 ::access(failed.place.c_str(), R_OK) == 0
             ? Error(failed.why.code(),
                     failed.why.message() + "; it is on this machine, and --sync brings the folder to the hosts")
             : failed.why;
}

}  // namespace

void NodeReports::on_ready(int node, const ReadyMessage& ready) {
  to_.start.on_ready(node, ready);
}

void NodeReports::on_progress(int node, const std::string& what) {
  job_.log.write(LogLevel::kDebug, job_.agent(node).host.name + ": " + what);
  job_.say(news::NodeProgress{node, what});
  job_.show_status();
}

void NodeReports::on_notice(int node, const std::string& what) {
  job_.say(Note{LogLevel::kWarning, node, what});
}

void NodeReports::on_away(int node, const Error& why, Duration patience) {
  job_.say(news::NodeAway{node, why, patience});
  to_.tree.change(node, Relay::State::kAway);
  to_.away.on_away(node, why);
}

void NodeReports::on_back(int node, Duration away) {
  job_.say(news::NodeBack{node, away});
  to_.away.on_back(node);
  to_.watch.on_back(node);
  to_.tree.change(node, Relay::State::kUp);
}

void NodeReports::on_started(int rank, int pid) {
  job_.log.write(LogLevel::kDebug, "rank " + std::to_string(rank) + " runs as pid " + std::to_string(pid) + " on " +
                                       job_.placement.node_of(rank).host.name);
  job_.say(news::RankStarted{rank, pid});
  job_.apply(RankStarted{rank, pid});
  to_.watch.on_started(job_.agents.node_of(rank).index);
}

void NodeReports::on_joined(const JoinedMessage& joined) {
  job_.apply(RankJoined{joined.rank});
  job_.generations.on_joined(joined);
}

void NodeReports::on_start_failed(const StartFailedMessage& failed) {
  const HostSpec& host = job_.placement.node_of(failed.rank).host;
  job_.apply(RankStartFailed{failed.rank, with_sync_hint(job_.spec, host, failed)});
}

void NodeReports::on_output(int node, const OutputMessage& output) {
  to_.watch.on_output(output.rank, output.bytes);
  job_.logs.feed(node, output.rank, output.stream == StreamId::kStderr, output.bytes);
}

void NodeReports::on_output_end(int rank, StreamId stream) {
  job_.logs.finish(rank, stream == StreamId::kStderr);
}

void NodeReports::on_input_credit(int node, std::uint64_t bytes) {
  if (JobInput* const input = to_.start.input(); input != nullptr) {
    input->on_credit(node, bytes);
  }
}

void NodeReports::on_input_over(int node) {
  if (JobInput* const input = to_.start.input(); input != nullptr) {
    input->on_over(node);
  }
}

void NodeReports::on_failing(const FailingMessage& failing) {
  FailureNews news = failing.news;
  const bool may_be_cut = news.what.size() + kMostUtf8Bytes > FailureNews::kMaxWhatBytes;
  news.what = may_be_cut ? masked_at_cut(news.what, job_.spec.hidden) : masked(news.what, job_.spec.hidden);
  job_.log.write(LogLevel::kDebug, "rank " + std::to_string(failing.rank) + " tells of a failure: " + news.what);
  news.by = job_.generations.started_as(failing.generation, news.by);
  job_.apply(RankFailing{failing.rank, std::move(news), job_.loop.now()});
}

void NodeReports::on_sample(int node, const SampleMessage& sample) {
  SampleMessage shown = sample;
  for (RankSample& rank : shown.ranks) {  // a program names its tensors as it likes
    rank.runtime.tensor = masked(rank.runtime.tensor, job_.spec.hidden);
  }
  to_.watch.on_sample(node, shown);
}

void NodeReports::on_exited(const ExitedMessage& exited) {
  job_.log.write(LogLevel::kDebug, "rank " + std::to_string(exited.rank) + " " + exited.status.text());
  job_.say(news::RankEnded{exited.rank, exited.status, exited.detail});
  job_.apply(RankExited{exited.rank, exited.status, exited.detail, job_.loop.now()});
  to_.hosts.look_later();
  const bool is_over = job_.record(exited.rank).state == RankRecord::State::kEnded;
  if (job_.spec.restart_limit > 0 && is_over && exited.status.is_success()) {
    job_.generations.on_done(exited.rank);
    to_.hosts.stop_joining_if_over();
  }
  to_.hosts.end_if_idle(job_.agents.node_of(exited.rank).index);
}

void NodeReports::on_exchange(const ExchangeMessage& exchange) {
  if (const auto posted = job_.generations.post(exchange); !posted.ok()) {
    job_.log.write(LogLevel::kWarning, "rank " + std::to_string(exchange.rank) + ": " + posted.error().message());
  }
}

void NodeReports::on_problem(int node, const std::string& text) {
  job_.say(Note{LogLevel::kError, node, text});
}

Result<void> NodeReports::on_relay(int node, const Frame& frame) {
  return to_.tree.on_frame(node, frame);
}

void NodeReports::on_suspended(int /*node*/) {
  to_.suspension.on_suspended();
}

void NodeReports::on_done(int node) {
  job_.apply(NodeDone{node});
  to_.hosts.on_done(node);
}

Result<void> NodeReports::on_answer(int node, AgentMessage type, const std::string& body) {
  if (type == AgentMessage::kResultList || type == AgentMessage::kResultBytes) {
    return to_.ending.on_result(node, type, body);
  }
  if (is_about_tree(type)) {
    return to_.start.on_tree_message(node, type, body);
  }
  return type == AgentMessage::kStacks ? to_.stacks.on_answer(node, body) : SessionSink::on_answer(node, type, body);
}

void NodeReports::on_lost(int node, const Error& why) {
  if (!job_.state.is_over(node)) {
    job_.say(news::NodeLost{node, why});
    job_.show_status();
  }
  to_.tree.change(node, Relay::State::kGone);
  to_.start.on_lost(node);
  on_input_over(node);
  job_.apply(NodeLost{node, why});
  to_.hosts.look_later();
  to_.ending.end_if_closed();
}

void NodeReports::on_ending(int node, const std::string& why) {
  job_.log.write(LogLevel::kDebug, job_.agent(node).host.name + ": " + why);
  if (job_.state.is_over(node)) {
    return;  // the job has all that it needs of it
  }
  if (to_.engine.is_there()) {
    to_.engine.on_ending(node, why);
  } else {
    to_.ending.apply_notice(NodeEnding{node, why, to_.hosts.on_ending(node)});
  }
}

void NodeReports::on_leaving(int node, const std::string& why) {
  if (!to_.hosts.on_leaving(node, why)) {
    on_ending(node, why);
  }
}

}  // namespace hvd::launch
