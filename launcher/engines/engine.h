// Engine is the process of somebody else's launcher, which starts our agents: mpirun one for each rank, srun and jsrun
// one for each node. The agents call back (dial_back.h). All that differs between engines is a value, EngineCommand
// (mpirun.h, slurm.h and jsrun.h make one).
//
// Thread: loop only. Destroying it ends the engine's process, if it still runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/command/rsh_process.h"
#include "launcher/process/stop_ladder.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"
#include "runtime/rendezvous/store.h"

namespace hvd::launch {

// EngineFailure is what an engine's own words mean.
struct EngineFailure {
  Code code = Code::kSystem;  // kInvalid: what it was asked for; kUnreachable: a host
  std::string advice;         // what to try; may be empty
};

// One word of a command may have 128 KiB at most (Linux's MAX_ARG_STRLEN). Longer names of hosts stand in a file.
constexpr std::size_t kLongestHosts = 100'000;
// This stands for the path of that file in the words of a command.
constexpr std::string_view kHostsFile = "/HOSTS";

struct EngineCommand {
  std::string name;  // "mpirun": in messages
  std::vector<std::string> argv;
  std::vector<std::string> environment;
  std::string input;             // what it reads at its standard input, before the end
  std::string hosts;             // the text of the file that argv names as kHostsFile; empty: there is none
  std::uint64_t open_files = 0;  // for it, and so for the ranks (SpawnOptions)
  std::string_view noise;        // what it says of no interest: a line with these words counts for nothing
  EngineFailure (*failure_in)(std::string_view output) = nullptr;
};

class Engine {
 public:
  struct Handlers {
    // The engine has printed a line, on either stream. It comes without its end, and without frames drawn around it.
    std::function<void(const std::string& line)> on_line;
    // The engine has ended; `why` says how, with its own words.
    std::function<void(const Error& why)> on_over;
  };

  Engine(EventLoop& loop, EngineCommand command) : command_(std::move(command)), loop_(loop), ladder_(loop) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Result<void> start(Handlers handlers);
  // Ends the engine without a message: SIGTERM now, SIGKILL later. The destructor waits for what is left.
  void end() { process_.reset(); }
  [[nodiscard]] bool is_running() const { return process_ != nullptr; }
  [[nodiscard]] const EngineCommand& command() const { return command_; }
  // Returns the first thing that the engine said, for a message; it may be empty.
  [[nodiscard]] std::string first_words() const;

 private:
  // Returns the words of the command, with the path of the file of hosts, which is made here.
  Result<std::vector<std::string>> words();
  void take(std::string& partial, std::string_view text);
  void take_line(std::string line);
  void on_over(const std::optional<ExitStatus>& status);

  // constant after start()
  const EngineCommand command_;
  EventLoop& loop_;
  Handlers handlers_;
  // loop only
  StopLadder ladder_;
  Fd hosts_file_;
  std::string partial_output_;
  std::string partial_errors_;
  std::vector<std::string> lines_;  // the first of them, also the empty ones
  std::unique_ptr<ByteProcess> process_;
};

// EngineOrphans ends what an engine leaves behind: mpirun leaves the ssh to a host that does not answer. From adopt()
// on such processes become children of this one, and are asked to end last. The program must have no other children
// then. It outlives the Engine.
class EngineOrphans {
 public:
  static Result<std::unique_ptr<EngineOrphans>> adopt();
  ~EngineOrphans();
  EngineOrphans(const EngineOrphans&) = delete;
  EngineOrphans& operator=(const EngineOrphans&) = delete;

 private:
  EngineOrphans() = default;
};

// Returns the first thing that these lines say, for a message: the text before the first empty line or rule, and what
// comes after that where a colon announces it. Pure.
std::string first_paragraph(const std::vector<std::string>& lines);

}  // namespace hvd::launch
