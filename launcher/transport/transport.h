// Transport is a way to reach a node. It gives a byte stream to an agent that runs there, and nothing else: ranks,
// output and exits travel inside it as frames (launcher/wire/messages.h), the same over every transport.
//
// Thread: loop only. A Stream calls its sink from the loop, never from inside open() or write().
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

// This says where to go. `host` is the name as the user wrote it.
struct NodeTarget {
  std::string host;
  std::string user;  // empty: the transport's default
  int port = 0;      // 0: the transport's default
  int rank = 0;      // the first of the agent's ranks: by which an agent that calls says which it is
};

// This is what is known of the way to a node once its agent runs.
struct Opened {
  bool is_local = false;         // the node is this machine
  std::string node_address;      // numeric, under which the launcher reached the node; empty when it cannot be seen
  std::string launcher_address;  // the launcher's own on that path; empty likewise
  std::vector<std::string> named_addresses;  // what the host's name means here; a hint when node_address is empty
  bool was_pushed = false;                   // the agent was not there and had to be brought
};

// This is the code of on_closed when the agent has certainly ended, so that no new stream would find it.
inline constexpr Code kAgentEnded = Code::kCancelled;

// StreamSink hears what a Stream reports. Nothing comes after on_closed.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  // The agent runs, and bytes may be written.
  virtual void on_open(const Opened& opened) = 0;
  // Reports something that --verbose shows: "pushing the agent (1.9 MB)".
  virtual void on_progress(const std::string& what) = 0;
  // Reports something that the user should know without --verbose: "using the system's ssh, because ...".
  virtual void on_notice(const std::string& what) = 0;
  virtual void on_bytes(Bytes bytes) = 0;
  // The stream is over: it never opened (why says what to try), broke (kLostPeer), or the agent ended it (kAgentEnded).
  virtual void on_closed(const Error& why) = 0;

 protected:
  StreamSink() = default;
  StreamSink(const StreamSink&) = default;
  StreamSink& operator=(const StreamSink&) = default;
};

class Stream {
 public:
  // Closes at once; the sink hears nothing more.
  virtual ~Stream() = default;
  // Queues bytes. Only control frames are written, so the queue is small.
  virtual void write(std::string bytes) = 0;
  // Flushes what is queued, then tells the agent "end of input".
  virtual void close_input() = 0;

 protected:
  Stream() = default;
  Stream(const Stream&) = default;
  Stream& operator=(const Stream&) = default;
};

// ConversationStream is a Stream that starts a conversation, passes on what is written, and abandons it in the end.
template <typename Conversation>
class ConversationStream final : public Stream {
 public:
  explicit ConversationStream(std::shared_ptr<Conversation> conversation) : conversation_(std::move(conversation)) {
    conversation_->start();
  }
  ~ConversationStream() override { conversation_->abandon(); }
  ConversationStream(const ConversationStream&) = delete;
  ConversationStream& operator=(const ConversationStream&) = delete;
  void write(std::string bytes) override { conversation_->write(std::move(bytes)); }
  void close_input() override { conversation_->close_input(); }

 private:
  std::shared_ptr<Conversation> conversation_;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Starts to open. The outcome is reported to the sink, which must outlive the Stream.
  virtual std::unique_ptr<Stream> open(const NodeTarget& target, StreamSink& sink) = 0;
  // When a node last took a part of the agent, which is being brought to it.
  [[nodiscard]] virtual std::optional<TimePoint> pushed_at() const { return std::nullopt; }

 protected:
  Transport() = default;
  Transport(const Transport&) = default;
  Transport& operator=(const Transport&) = default;
};

}  // namespace hvd::launch
