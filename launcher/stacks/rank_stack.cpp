#include "launcher/stacks/rank_stack.h"

#include <cstdint>

#include <nlohmann/json.hpp>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostName = 120;
constexpr std::size_t kMostFrames = 400;  // a recursion that has no end must not fill the screen

std::string text_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::int64_t number_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::string shown(const std::string& text) {
  return without_controls(text).substr(0, kMostName);
}

// The packages through which scripts call libhvd.
bool is_of_libhvd(const Json& frame) {
  return text_in(frame, "filename").find("/horovod/") != std::string::npos;
}

// Python's import system makes a dozen such frames of one import statement. The frame of that statement says enough.
bool is_of_import(const Json& frame) {
  return text_in(frame, "filename").starts_with("<frozen importlib");
}

// Returns the value of the argument `name`, which our packages give to each operation on a tensor.
std::string tensor_of(const Json& frame) {
  const auto locals = frame.find("locals");
  if (locals == frame.end() || !locals->is_array()) {
    return "";
  }
  for (const Json& local : *locals) {
    std::string value = text_in(local, "repr");
    if (text_in(local, "name") == "name" && value.size() > 2 && value.front() == '"' && value.back() == '"') {
      return value.substr(1, value.size() - 2);
    }
  }
  return "";
}

std::string line_of(const Json& frame) {
  const std::string name = text_in(frame, "name");
  const std::string file = text_in(frame, "short_filename");
  const std::int64_t line = number_in(frame, "line");
  return shown(line > 0 ? file + ":" + std::to_string(line) + " " + name : name);
}

// Returns the frames of a thread, the outermost first.
std::vector<std::string> lines_of(const Json& frames) {
  std::vector<std::string> lines;
  std::string operation;
  std::string tensor;
  bool is_inside = false;
  const auto end_operation = [&] {
    if (is_inside) {
      lines.push_back(operation + (tensor.empty() ? "" : " '" + shown(tensor) + "'"));
    }
    is_inside = false;
    tensor.clear();
  };
  for (auto frame = frames.rbegin(); frame != frames.rend() && lines.size() < kMostFrames; ++frame) {
    // An address without a symbol differs from process to process, and says nothing.
    if (!frame->is_object() || text_in(*frame, "name").starts_with("0x") || is_of_import(*frame)) {
      continue;
    }
    // What libhvd calls in turn, such as ctypes, belongs to the operation; a native frame has no line.
    if (is_of_libhvd(*frame)) {
      operation = is_inside ? operation : shown(text_in(*frame, "name"));
      tensor = tensor.empty() ? tensor_of(*frame) : tensor;
      is_inside = true;
    } else if (!is_inside || number_in(*frame, "line") > 0) {
      end_operation();
      lines.push_back(line_of(*frame));
    }
  }
  end_operation();
  return lines;
}

// Returns the main thread, whose number is the process's; else the first one with frames.
const Json* main_thread(const Json& threads, int pid) {
  const Json* first = nullptr;
  for (const Json& thread : threads) {
    const auto frames = thread.is_object() ? thread.find("frames") : thread.end();
    if (!thread.is_object() || frames == thread.end() || !frames->is_array() || frames->empty()) {
      continue;
    }
    if (number_in(thread, "os_thread_id") == pid) {
      return &thread;
    }
    first = first == nullptr ? &thread : first;
  }
  return first;
}

}  // namespace

RankStack stack_of(const RankStacks& read) {
  RankStack stack{read.rank, read.pid, read.host, {}, false, {}, {}};
  const Json threads = Json::parse(read.text, nullptr, false);
  const Json* const main = threads.is_array() ? main_thread(threads, read.pid) : nullptr;
  if (main != nullptr) {
    stack.frames = lines_of((*main)["frames"]);
    // Where a compiled function or another thread calls libhvd, Python's frames do not name the operation.
    const bool is_named = !stack.frames.empty() && stack.frames.back().ends_with('\'');
    if (!read.waits.empty() && !is_named) {
      stack.frames.push_back("(libhvd waits for " + shown(read.waits) + ")");
    }
    stack.is_read = true;
    return stack;
  }
  stack.why = !read.why.empty() ? read.why : read.text.empty() ? "no answer" : "it runs no Python code";
  stack.known = (read.kernel.empty() ? "" : "; the kernel says: " + read.kernel) +
                (read.waits.empty() ? "" : "; libhvd waits for " + shown(read.waits));
  stack.frames.push_back(no_stack_line(stack.why, stack.known));
  return stack;
}

std::string no_stack_line(const std::string& why, const std::string& known) {
  return "(no stack" + (why.empty() ? "" : ": " + why) + known + ")";
}

}  // namespace hvd::launch
