// SshInput is what still goes to the remote command of a node, in its order: the agent, if the node has asked for it,
// then what the session writes once the agent is up, then the end of input. It knows no channel, because each call of
// libssh2 takes as much as it likes: whoever sends asks what is next, and says how much of it was taken.
//
// Value type. An image is not copied, so it must outlive this object.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace hvd::launch {

class SshInput {
 public:
  // Adds what the session writes. It is kept until the agent is up.
  void write(std::string bytes) {
    if (session_.empty()) {
      session_ = std::move(bytes);
    } else {
      session_ += bytes;
    }
  }
  // Ends the input behind all that was written.
  void finish() { wants_end_ = true; }
  // Sends the bytes of an agent before all others. A node that asks again does not get the beginning again.
  void push(std::string_view image) { image_ = image; }
  // The agent is up: from now on it gets what the session writes.
  void begin_session() { has_agent_ = true; }
  // The remote side takes no more, and nothing is next from now on.
  void give_up() { is_broken_ = true; }

  // Returns all bytes that may go now. If none of them were taken, the same must be offered again.
  [[nodiscard]] std::string_view next() const {
    if (is_broken_) {
      return {};
    }
    return has_agent_ ? std::string_view(session_).substr(session_at_)
                      : image_.substr(std::min(pushed_, image_.size()));
  }
  // The remote side took so many bytes of next().
  void take(std::size_t count) {
    (has_agent_ ? session_at_ : pushed_) += count;
    if (session_at_ == session_.size() || session_at_ > kMostTaken) {
      session_.erase(0, session_at_);
      session_at_ = 0;
    }
  }
  // True when all was taken, and only its end is still to be sent.
  [[nodiscard]] bool is_end_next() const {
    return has_agent_ && !is_broken_ && next().empty() && wants_end_ && !has_ended_;
  }
  void end_sent() { has_ended_ = true; }
  // True when next() has bytes, or the end is next.
  [[nodiscard]] bool has_more() const { return !next().empty() || is_end_next(); }

  [[nodiscard]] bool has_image() const { return !image_.empty(); }
  [[nodiscard]] std::size_t pushed() const { return pushed_; }
  [[nodiscard]] bool wants_end() const { return wants_end_; }
  // How many bytes of the session's are in memory.
  [[nodiscard]] std::size_t kept_bytes() const { return session_.size(); }
  // Gives away what the session has written, for another way to the node.
  std::string release() { return std::exchange(session_, ""); }

 private:
  // So much that was taken is kept, so that what is left is not moved at each call.
  static constexpr std::size_t kMostTaken = 1U << 20U;

  std::string_view image_;
  std::size_t pushed_ = 0;  // of image_
  std::string session_;     // what the session has written
  std::size_t session_at_ = 0;
  bool has_agent_ = false;
  bool is_broken_ = false;
  bool wants_end_ = false;
  bool has_ended_ = false;
};

}  // namespace hvd::launch
