// Engine: somebody else's launcher, which starts one agent of ours for each rank; these call back (dial_back.h). All
// that differs between engines is a value, EngineCommand (mpirun.h makes one).
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
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"
#include "runtime/rendezvous/store.h"

namespace hvd::launch {

// What an engine's own words come to.
struct EngineFailure {
  Code code = Code::kSystem;  // kInvalid: what it was asked for; kUnreachable: a host
  std::string advice;         // what to try; may be empty
};

struct EngineCommand {
  std::string name;  // "mpirun": in messages
  std::vector<std::string> argv;
  std::vector<std::string> environment;
  std::string input;             // what it reads at its standard input, before the end
  std::uint64_t open_files = 0;  // for it, and so for the ranks (SpawnOptions)
  EngineFailure (*failure_in)(std::string_view output) = nullptr;
};

class Engine {
 public:
  struct Handlers {
    // What the engine itself says, on either stream: a line without its end, and without the frames that it draws.
    std::function<void(const std::string& line)> on_line;
    // It has ended, with what came of it and its own words for it.
    std::function<void(const Error& why)> on_over;
  };

  Engine(EventLoop& loop, EngineCommand command) : command_(std::move(command)), loop_(loop), ladder_(loop) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Result<void> start(Handlers handlers);
  // Ends it without a word: SIGTERM now, SIGKILL later. What is left is waited for by the destructor.
  void end() { process_.reset(); }
  [[nodiscard]] bool is_running() const { return process_ != nullptr; }
  [[nodiscard]] const EngineCommand& command() const { return command_; }
  // The first thing that it has said, for a message; empty: nothing.
  [[nodiscard]] std::string first_words() const;

 private:
  void take(std::string& partial, std::string_view text);
  void take_line(std::string line);
  void on_over(const std::optional<ExitStatus>& status);

  // constant after start()
  const EngineCommand command_;
  EventLoop& loop_;
  Handlers handlers_;
  // loop only
  StopLadder ladder_;
  std::string partial_output_;
  std::string partial_errors_;
  std::vector<std::string> lines_;  // the first of them, also the empty ones
  std::unique_ptr<ByteProcess> process_;
};

// What an engine leaves behind when it is ended: mpirun leaves the ssh that leads to a host which does not answer. From
// adopt() on such processes become children of this one, and in the end they are asked to end too. For a program that
// has no other children then; outlives the Engine.
class EngineOrphans {
 public:
  static Result<std::unique_ptr<EngineOrphans>> adopt();
  ~EngineOrphans();
  EngineOrphans(const EngineOrphans&) = delete;
  EngineOrphans& operator=(const EngineOrphans&) = delete;

 private:
  EngineOrphans() = default;
};

// The first thing that these lines say, for a message: what stands before the first empty line or rule, and what
// comes after that where a colon announces it. Pure.
std::string first_paragraph(const std::vector<std::string>& lines);

}  // namespace hvd::launch
