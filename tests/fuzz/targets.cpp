#include "tests/fuzz/targets.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "launcher/command/rsh_template.h"
#include "launcher/engines/engine.h"
#include "launcher/engines/mpirun.h"
#include "launcher/job/host_list.h"
#include "launcher/job/hostfile.h"
#include "launcher/job/tunable.h"
#include "launcher/jobfile/form_reader.h"
#include "launcher/jobfile/variable_text.h"
#include "launcher/logs/line_gather.h"
#include "launcher/logs/line_splitter.h"
#include "launcher/logs/live_rows.h"
#include "launcher/placement/placement.h"
#include "launcher/post_mortem/oom_watch.h"
#include "launcher/report/traceback.h"
#include "launcher/service/cluster.h"
#include "launcher/service/ticket.h"
#include "launcher/survey/own_gpus.h"
#include "launcher/transport/ssh_config.h"
#include "launcher/wire/engine_call.h"
#include "launcher/wire/messages.h"
#include "runtime/base/cpu_list.h"
#include "runtime/base/frame.h"
#include "runtime/bench/bench_wire.h"
#include "runtime/controller/known_wire.h"
#include "runtime/controller/message.h"
#include "runtime/core/tuning_table.h"
#include "runtime/link/mesh_peer.h"
#include "runtime/rendezvous/handshake.h"
#include "runtime/rendezvous/record.h"
#include "tests/fuzz/check_targets.h"
#include "tests/fuzz/job_targets.h"
#include "tests/fuzz/require.h"

namespace hvd::fuzz {
namespace {

namespace launch = hvd::launch;

// The input in pieces whose lengths it decides itself.
template <typename Feed>
void in_pieces(std::string_view input, const Feed& feed) {
  std::size_t at = 0;
  while (at < input.size()) {
    const std::size_t length = std::min<std::size_t>(static_cast<unsigned char>(input[at]) % 7 + 1, input.size() - at);
    feed(input.substr(at, length));
    at += length;
  }
}

void check_hosts(const Result<launch::HostList>& hosts) {
  if (!hosts.ok()) {
    return;  // with the user's own text in its words, whatever that is
  }
  long slots = 0;
  for (const launch::HostSpec& host : hosts.value()) {
    require(!host.name.empty() && host.name.front() != '-', "a host's name is no option");
    require(host.slots >= 1 && host.port >= 0 && host.port <= 65535, "slots and port are in range");
    require(host.name.find_first_of(" \t\r\n,") == std::string::npos, "a host's name is one word");
    slots += host.slots;
  }
  if (slots <= 4096) {
    const auto placement = launch::place(hosts.value(), 0);
    require(!placement.ok() || placement.value().size == slots, "each slot gets a rank");
  }
}

void host_list(std::string_view input) {
  check_hosts(launch::parse_host_list(input));
}

void hostfile(std::string_view input) {
  check_hosts(launch::parse_hostfile(input, "file"));
}

void config_file(std::string_view input) {
  if (const auto settings = launch::parse_config_file(std::string(input), "file"); settings.ok()) {
    for (const auto& [name, value] : settings.value()) {
      require(!name.empty() && name.find('=') == std::string::npos, "a setting has the name of a variable");
    }
  }
}

void cpu_list(std::string_view input) {
  if (const auto cpus = parse_cpu_list(input); cpus.ok()) {
    require(std::is_sorted(cpus.value().begin(), cpus.value().end()), "processors are in order");
    require(parse_cpu_list(cpu_list_text(cpus.value())).value() == cpus.value(), "what is written is read back");
  }
}

void ssh_config(std::string_view input) {
  const launch::SshRequest request{"node1", "", 0, "", ""};
  const auto config = launch::parse_ssh_config(input, request, {"me", "/home/me"});
  if (config.ok()) {
    require(config.value().port >= 0 && config.value().port <= 65535, "a port is in range");
  } else {
    require(!config.error().message().empty(), "an error has words");
  }
}

void rsh_template(std::string_view input) {
  const auto command = launch::RshTemplate::parse(input);
  if (!command.ok()) {
    return;
  }
  const auto words = command.value().words({"node1", "", 0}, {"me", 22});
  if (words.ok()) {
    require(!words.value().empty(), "a command has a program");
    // What is shown to the user is what a shell would execute.
    const std::string text = launch::shown_words(words.value());
    const auto shown = launch::split_shell_words(text);
    const bool is_whole = text.size() <= launch::kMaxShownBytes;
    require(!is_whole || (shown.ok() && shown.value() == words.value()), "shown words are the words");
  }
}

void gpu_list(std::string_view input) {
  const auto gpus = launch::gpus_in_list(input);
  const auto end = std::min(input.find('\n'), input.size());
  require(launch::visible_gpus(gpus, input.substr(0, end)).size() <= gpus.size(), "no more are visible than there are");
}

void line_splitter(std::string_view input) {
  std::string whole;
  launch::LineSplitter at_once;
  const auto take_whole = [&whole](std::string_view line) { whole.append(line).push_back('\0'); };
  at_once.feed(input, take_whole);
  at_once.finish(take_whole);
  std::string pieces;
  launch::LineSplitter bit_by_bit;
  const auto take_piece = [&pieces](std::string_view line) { pieces.append(line).push_back('\0'); };
  in_pieces(input, [&](std::string_view piece) { bit_by_bit.feed(piece, take_piece); });
  bit_by_bit.finish(take_piece);
  require(whole == pieces, "lines are the same however they came");
  std::string bytes(input);
  for (std::string* text : {&bytes, &whole}) {
    std::erase(*text, '\0');
  }
  require(whole == bytes, "no byte is lost or added");
}

void live_rows(std::string_view input) {
  const std::string row = launch::fit_row(input, 20);
  require(row.find_first_of("\n\r\b\t\x7f") == std::string::npos, "a row moves no cursor");
  for (auto at = row.find('\x1b'); at != std::string::npos; at = row.find('\x1b', at + 1)) {
    require(row.compare(at, 2, "\x1b[") == 0 && row.find('m', at) != std::string::npos,
            "a row's sequences are colours");
  }
  require(launch::fit_row(row, 20) == row || row.ends_with("\x1b[0m"), "what fits stays as it is");
}

// Each piece is a line; its first bytes say whose and when.
void line_gather(std::string_view input) {
  constexpr int kRanks = 4;
  std::vector<std::string> expected(kRanks);
  std::vector<std::string> printed(kRanks);
  launch::LineGather gather(kRanks, std::chrono::milliseconds(10), 600,
                            [&](std::span<const int> ranks, bool, std::string_view line) {
                              for (const int rank : ranks) {
                                printed[static_cast<std::size_t>(rank)] += line;
                              }
                            });
  TimePoint now;
  in_pieces(input, [&](std::string_view piece) {
    const auto byte = static_cast<unsigned char>(piece.front());
    const int rank = byte % kRanks;
    now += std::chrono::milliseconds(byte / 64);
    gather.release_due(now);
    expected[static_cast<std::size_t>(rank)] += piece;
    gather.add(rank, byte % 8 > 5, piece, now);
    require(gather.held_bytes() <= 600, "what is held is bounded");
  });
  gather.release_all();
  require(printed == expected, "each rank's lines come in their order");
  require(gather.held_bytes() == 0 && !gather.when(), "nothing is held in the end");
}

void traceback(std::string_view input) {
  std::vector<std::string> lines;
  while (!input.empty()) {
    const auto end = std::min(input.find('\n'), input.size());
    lines.emplace_back(input.substr(0, end));
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  if (const auto found = launch::find_traceback(lines)) {
    require(!found->exception.empty() && found->frame.find(':') != std::string::npos, "a traceback has both its parts");
  }
}

// The first line stands for /proc/self/cgroup, the rest for mountinfo.
void memory_cgroup(std::string_view input) {
  const auto end = std::min(input.find('\n'), input.size());
  const auto counter =
      launch::cgroup_counter(std::string(input.substr(0, end)), std::string(input.substr(end)), "/no/such/root");
  require(counter.file.empty(), "no counter where no file is");
}

std::string frames_of(FrameDecoder& decoder, bool& has_failed) {
  std::string out;
  while (!has_failed) {
    auto frame = decoder.next();
    has_failed = !frame.ok();
    if (has_failed || !frame.value()) {
      break;
    }
    append_frame(out, launch::kAgentFrames, frame.value()->type, frame.value()->body);
  }
  return out;
}

void frames(std::string_view input) {
  FrameDecoder at_once(launch::kAgentFrames);
  bool has_failed = false;
  at_once.feed(as_bytes(input));
  const std::string whole = frames_of(at_once, has_failed);
  require(input.starts_with(whole), "frames are written as they were read");
  FrameDecoder bit_by_bit(launch::kAgentFrames);
  bool has_failed_too = false;
  std::string pieces;
  in_pieces(input, [&](std::string_view piece) {
    bit_by_bit.feed(as_bytes(piece));
    pieces += frames_of(bit_by_bit, has_failed_too);
  });
  require(pieces == whole && has_failed == has_failed_too, "frames are the same however they came");
}

// The first byte chooses the message.
void agent_messages(std::string_view input) {
  static constexpr void (*kDecoders[])(std::string_view) = {
      one_message<launch::WelcomeMessage>,
      one_message<launch::ReadyMessage>,
      one_message<launch::ResumeMessage>,
      one_message<launch::StartMessage>,
      one_message<launch::StopMessage>,
      one_message<launch::StartFailedMessage>,
      one_message<launch::ExitedMessage>,
      one_message<launch::ExchangeMessage>,
      one_message<launch::ExchangedMessage>,
      [](std::string_view body) { static_cast<void>(launch::OutputMessage::decode(body)); },
      [](std::string_view body) { static_cast<void>(launch::decode_number(body)); },
      [](std::string_view body) { static_cast<void>(launch::decode_count(body)); },
      one_message<launch::RelayStartMessage>,
      one_message<launch::RelayOverMessage>,
      one_message<launch::GenerationMessage>,
      [](std::string_view body) {
        if (const auto message = launch::RelayMessage::decode(body); message.ok()) {
          static_cast<void>(launch::decode_relay_number(message.value()));
        }
      },
      one_message<launch::FailingMessage>,
      [](std::string_view body) { static_cast<void>(launch::decode_two_numbers(body)); },
      one_message<launch::JoinedMessage>};
  if (!input.empty()) {
    kDecoders[static_cast<unsigned char>(input.front()) % std::size(kDecoders)](input.substr(1));
  }
}

template <typename Batch, typename Append>
void same_again(const Batch& batch, std::string_view body, const Append& append) {
  std::string out;
  append(out, batch);
  // One frame, unless the batch is empty or larger than a frame is made.
  if (!batch.empty() && body.size() < control_wire::kBatchBytes) {
    require(out.size() == body.size() + kFrameHeaderBytes && out.ends_with(body), "a batch is written as it was read");
  }
}

// The first byte chooses the message.
void control_messages(std::string_view input) {
  if (input.empty()) {
    return;
  }
  const std::string_view body = input.substr(1);
  switch (static_cast<unsigned char>(input.front()) % 4) {
    case 0:
      if (const auto batch = decode_requests(body); batch.ok()) {
        same_again(batch.value(), body, append_requests);
      }
      return;
    case 1:
      if (const auto batch = decode_responses(body, 3); batch.ok()) {
        same_again(batch.value(), body, append_responses);
      }
      return;
    case 2:
      if (const auto rank = decode_shutdown(body, 3); rank.ok()) {
        require(rank.value() >= 0 && rank.value() < 3, "a rank is one of the job");
      }
      return;
    default:
      static_cast<void>(decode_abort(body));
  }
}

// What all ranks know; the first byte chooses the message.
void known_messages(std::string_view input) {
  if (input.empty()) {
    return;
  }
  const std::string_view body = input.substr(1);
  std::string out;
  bool is_read = false;
  switch (static_cast<unsigned char>(input.front()) % 3) {
    case 0: {
      KnownBits known;
      is_read = decode_bits(body, known).ok();
      append_bits(out, is_read ? known : KnownBits());
      break;
    }
    case 1: {
      KnownHits hits;
      is_read = decode_hits(body, hits).ok();
      append_hits(out, is_read ? hits : KnownHits());
      break;
    }
    default: {
      const auto batch = decode_remembered(body);
      is_read = batch.ok() && body.size() < control_wire::kBatchBytes;
      if (is_read) {
        append_remembered(out, batch.value().process_set, batch.value().items);
      }
    }
  }
  require(!is_read || (out.size() == body.size() + kFrameHeaderBytes && out.ends_with(body)),
          "what is known is written as it was read");
}

void mesh_peer(std::string_view input) {
  if (const auto peer = decode_mesh_peer(std::string(input), 1); peer.ok()) {
    require(encode(peer.value()) == input, "a peer is written as it was read");
  }
}

void tuning_table(std::string_view input) {
  const auto table = parse_tuning_table(input, "file");
  if (!table.ok()) {
    require(table.error().message().starts_with("file:"), "an error names its place");
    return;
  }
  require(check(table.value().tuning).ok(), "a table's choices are in range");
  require(parse_tuning_table(to_json(table.value()), "file").value() == table.value(), "what is written is read back");
}

void tuning_word(std::string_view input) {
  if (const auto tuning = decode_tuning(input); tuning.ok()) {
    require(encode(tuning.value()) == input && check(tuning.value()).ok(), "a tuning is written as it was read");
  }
}

// What mpirun prints, and what it sets for an agent, a variable a line.
void engine_words(std::string_view input) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < input.size();) {
    const std::size_t end = std::min(input.find('\n', begin), input.size());
    lines.emplace_back(input.substr(begin, end - begin));
    begin = end + 1;
  }
  require(launch::first_paragraph(lines).find('\n') == std::string::npos, "what is quoted is one line");
  static_cast<void>(launch::mpirun_failure(input));
  if (const auto version = launch::open_mpi_in(input); version.ok()) {
    require(version.value().starts_with("Open MPI "), "a version has its name");
  }
  if (const auto seat = launch::seat_from("mpirun", lines); seat.ok()) {
    require(seat.value().rank >= 0 && seat.value().size >= 0, "a seat is one");
  }
  if (const auto key = launch::parse_call_key(input); key.ok()) {
    std::string lower(input);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    require(launch::call_key_text(key.value()) == lower, "a key is read as it is written");
  }
}

// What a stranger says, to an end that wants so much of it at a time.
template <typename End, typename Check>
void talk_to(End& end, std::string_view input, const Check& check) {
  bool is_over = false;
  in_pieces(input, [&](std::string_view piece) {
    while (!is_over && !piece.empty() && end.wanted() > 0) {
      const std::string_view taken = piece.substr(0, std::min(piece.size(), end.wanted()));
      piece.remove_prefix(taken.size());
      is_over = !check(end.feed(as_bytes(taken)));
    }
  });
}

// What a rank that measures prints, as words of its command line too.
void bench_lines(std::string_view input) {
  if (const auto row = bench::Row::decode(input); row) {
    const auto back = bench::Row::decode(row->encode());
    require(back && back->encode() == row->encode(), "a row comes through its line");
  }
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= input.size(); at = std::min(input.find(' ', at), input.size()) + 1) {
    words.emplace_back(input.substr(at, std::min(input.find(' ', at), input.size()) - at));
  }
  if (const auto options = bench::from_words(words); options.ok()) {
    const std::vector<std::string> plain = bench::to_words(options.value());  // "7" for "07"
    const auto back = bench::from_words(plain);
    require(plain.size() == words.size() && back.ok() && bench::to_words(back.value()) == plain,
            "options come through their words");
    require(bench::sizes_of(options.value()).size() <= 41, "few sizes");
  }
}

// A stranger that does not know the secret talks to a rank, to a launcher whom agents call, and to such an agent.
void handshake(std::string_view input) {
  const JobSecret secret{1, 2, 3};
  const Nonce nonce{4, 5, 6};
  const KeyPair pair = KeyPair::of({7, 8, 9}).value();
  for (const int rank : {0, kLauncher}) {
    HandshakeAcceptor acceptor =
        rank == kLauncher ? HandshakeAcceptor(secret, rank, nonce, pair) : HandshakeAcceptor(secret, rank, nonce);
    talk_to(acceptor, input, [](const Result<std::optional<LinkClaim>>& claim) {
      require(!claim.ok() || !claim.value(), "nobody is let in without the secret");
      return claim.ok();
    });
  }
  const LinkClaim call{LinkRole::kAgent, 3, kLauncher, "node1", "10.0.0.1:4711"};
  for (const bool is_sealed : {false, true}) {
    HandshakeConnector connector(secret, call, nonce, is_sealed ? std::optional(pair) : std::nullopt);
    talk_to(connector, input, [](const Result<std::string>& answer) { return answer.ok(); });
    require(!connector.is_done(), "nobody is taken for the launcher without the secret");
  }
}

// Whatever stands on the wire of an encrypted connection: the input itself, and true records that it changes.
void records(std::string_view input) {
  const RecordKey key{{1}, {2}};
  RecordOpener stranger(key);
  in_pieces(input, [&stranger](std::string_view piece) {
    stranger.feed(as_bytes(piece));
    const auto next = stranger.next();
    require(!next.ok() || !next.value(), "nothing is opened that was not sealed");
  });
  RecordSealer sealer(key);
  std::string wire;
  in_pieces(input, [&](std::string_view piece) { require(sealer.seal(piece, wire).ok(), "everything can be sealed"); });
  RecordOpener opener(key);
  std::string text;
  in_pieces(wire, [&](std::string_view piece) {
    opener.feed(as_bytes(piece));
    for (auto next = opener.next(); next.ok() && next.value(); next = opener.next()) {
      text += as_text(*next.value());
    }
  });
  require(text == input && opener.buffered() == 0, "what was sealed is opened, however it came");
}

// A cluster that can be read can be kept as a record: it is the same when it is read again, and all of it is such as
// may become a path, an argument or a variable.
void cluster_file(std::string_view input) {
  const auto loaded = launch::parse_cluster(input, "file", "lab");
  if (!loaded.ok()) {
    require_error(loaded.error());
    require(loaded.error().message().starts_with("file:"), "an error names its place");
    return;
  }
  const launch::Cluster& cluster = loaded.value().cluster;
  check_hosts(cluster.hosts);
  require(!cluster.hosts.empty(), "a cluster has a host");
  for (const auto& [name, directory] : cluster.mounts) {
    require(launch::is_inner_path(name) && directory.starts_with('/'), "a mount leads from inside to a directory");
    require(directory.find('\n') == std::string::npos, "a directory is one line");
  }
  for (const auto& [name, value] : cluster.env) {
    require(launch::is_variable_name(name) && value.find('\0') == std::string::npos, "a variable can be set");
  }
  const auto again = launch::parse_cluster(launch::cluster_text(cluster), "record.json", "lab");
  require(again.ok(), "what is written is read back");
  require(again.value().cluster == cluster, "and is the same");
}

void job_ticket(std::string_view input) {
  if (const auto ticket = launch::decode_ticket(input); ticket.ok()) {
    require(launch::decode_ticket(launch::encode(ticket.value())).value() == ticket.value(), "what is written is read");
  } else {
    require_error(ticket.error());
  }
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
      {"agent_messages", agent_messages},
      {"bench_lines", bench_lines},
      {"check_messages", check_messages},
      {"cluster_file", cluster_file},
      {"config_file", config_file},
      {"control_messages", control_messages},
      {"known_messages", known_messages},
      {"cpu_list", cpu_list},
      {"engine_words", engine_words},
      {"frames", frames},
      {"gpu_list", gpu_list},
      {"handshake", handshake},
      {"host_list", host_list},
      {"hostfile", hostfile},
      {"job_arguments", job_arguments},
      {"job_batchai", job_batchai},
      {"job_json", job_json},
      {"job_ticket", job_ticket},
      {"job_yaml", job_yaml},
      {"line_gather", line_gather},
      {"line_splitter", line_splitter},
      {"live_rows", live_rows},
      {"memory_cgroup", memory_cgroup},
      {"mesh_peer", mesh_peer},
      {"node_words", node_words},
      {"records", records},
      {"rsh_template", rsh_template},
      {"ssh_config", ssh_config},
      {"traceback", traceback},
      {"tuning_table", tuning_table},
      {"tuning_word", tuning_word},
  };
  return all;
}

}  // namespace hvd::fuzz
