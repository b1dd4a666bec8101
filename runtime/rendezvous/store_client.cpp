#include "runtime/rendezvous/store_client.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/io/socket.h"
#include "runtime/rendezvous/store_wire.h"

namespace hvd {
namespace {

constexpr const char* kAgentGone = "the agent of this node is gone";
constexpr const char* kAgentDeaf = "the agent of this node does not read what is sent to it";
constexpr int kInterruptEveryMs = 100;
constexpr Duration kTellTime = std::chrono::seconds(1);
// The answer travels to the launcher and back. Without it the error only says less.
constexpr Duration kAskTime = std::chrono::seconds(2);

// `missing` and `ended` are lists of ranks: "1-3,7".
std::string missing_text(const std::string& key, const std::string& missing, const std::string& ended) {
  const auto is_several = [](const std::string& ranks) { return ranks.find_first_of(",-") != std::string::npos; };
  const auto ranks_have = [&](const std::string& ranks) {
    return (is_several(ranks) ? "ranks " : "rank ") + ranks + (is_several(ranks) ? " have" : " has");
  };
  const std::string text =
      ranks_have(missing) + " not " + (key == kMeetingKey ? "called hvd.init()" : "come to the exchange '" + key + "'");
  if (!ended.empty()) {
    return text + "; " + (ended == missing ? is_several(ended) ? "they have" : "it has" : ranks_have(ended)) +
           " ended with code 0";
  }
  return key == kMeetingKey ? text + " yet: call it earlier there, or allow more time" : text;
}

}  // namespace

Result<std::unique_ptr<StoreClient>> StoreClient::connect(const std::string& socket_path, const std::string& token,
                                                          int rank, Deadline deadline) {
  auto fd = connect_unix(socket_path, deadline);
  if (!fd.ok()) {
    // Where nobody listens any more, nobody will: an agent does not come back.
    const Error why = fd.error().with_context("the agent of this node does not answer");
    return why.code() == Code::kTimeout ? why : Error(Code::kNotFound, why.message());
  }
  std::unique_ptr<StoreClient> client(new StoreClient(std::move(fd).value(), {socket_path, token, rank}));
  HVD_TRY(client->greet(deadline));
  return client;
}

Result<void> StoreClient::tell_once(const std::string& socket_path, const std::string& token, int rank,
                                    const FailureNews& news, Deadline deadline) {
  HVD_TRY_ASSIGN(const Fd fd, connect_unix(socket_path, deadline));
  ByteWriter visit;
  visit.text(token).i32(rank);
  return send_all(fd.get(),
                  as_bytes(make_frame(store_wire::kSpec, store_wire::kVisit, visit.str()) +
                           make_frame(store_wire::kSpec, store_wire::kFailure, news.encode())),
                  deadline);
}

StoreClient::StoreClient(Fd fd, Caller caller)
    : fd_(std::move(fd)), caller_(std::move(caller)), owner_(::getpid()), decoder_(store_wire::kSpec) {}

StoreClient::~StoreClient() {
  if (is_welcome_ && !is_closed_ && ::getpid() == owner_) {
    const std::string frame = make_frame(store_wire::kSpec, store_wire::kGoodbye, "");
    // Best effort: an agent that cannot take it now will see the end of file instead.
    [[maybe_unused]] const auto sent = ::send(fd_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

Result<void> StoreClient::greet(Deadline deadline) {
  const int rank = caller_.rank;
  ByteWriter hello;
  hello.text(caller_.token).i32(rank);
  const std::string frame = make_frame(store_wire::kSpec, store_wire::kHello, hello.str());
  const std::string what = "greeting the agent of this node as rank " + std::to_string(rank);
  if (auto sent = send_all(fd_.get(), as_bytes(frame), deadline); !sent.ok()) {
    return sent.error().with_context(what);
  }
  Patience patience(deadline);
  for (;;) {
    pump();
    if (is_welcome_) {
      return {};
    }
    if (is_released_) {
      return Error(Code::kCancelled, "rank " + std::to_string(rank) +
                                         " was released from the job: its host is given back, and the others train on");
    }
    if (is_closed_) {
      return Error(Code::kAuth, what + ": " + over_.value_or(kAgentGone) +
                                    "; it closes the connection when token or rank are not of its job");
    }
    HVD_TRY(sleep(patience, what));
  }
}

Result<void> StoreClient::sleep(Patience& patience, const std::string& what) const {
  pollfd p{fd_.get(), POLLIN, 0};
  const int ready = ::poll(&p, 1, std::min(patience.until().poll_ms(), kInterruptEveryMs));
  if (ready == 0 && patience.is_over()) {
    return Error(Code::kTimeout, what + " timed out");
  }
  if (ready < 0 && errno != EINTR) {
    return Error::from_errno("poll");
  }
  return {};
}

void StoreClient::end(const std::string& cause) {
  if (!over_) {
    over_ = cause;
  }
}

void StoreClient::pump() {
  std::array<std::uint8_t, 16384> buffer;
  while (!is_closed_) {
    const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0 && errno == EAGAIN) {
      return;
    }
    if (got <= 0) {
      is_closed_ = true;
      end(kAgentGone);
      return;
    }
    decoder_.feed(Bytes(buffer.data(), static_cast<std::size_t>(got)));
    for (;;) {
      auto frame = decoder_.next();
      if (!frame.ok()) {
        is_closed_ = true;
        end("the agent of this node: " + frame.error().message());
        return;
      }
      if (!frame.value()) {
        break;
      }
      take_frame(*frame.value());
    }
  }
}

void StoreClient::take_frame(const Frame& frame) {
  ByteReader reader(frame.body);
  if (frame.type == store_wire::kWelcome && !is_welcome_) {
    if (take_welcome(reader)) {
      is_welcome_ = true;
      return;
    }
  } else if (frame.type == store_wire::kChanged && is_welcome_ && reader.finished()) {
    has_changed_.store(true, std::memory_order_relaxed);
    return;
  } else if (frame.type == store_wire::kGrowing && is_welcome_) {
    const bool is_growing = reader.u8() != 0;
    if (reader.finished()) {
      is_growing_.store(is_growing, std::memory_order_relaxed);
      return;
    }
  } else if (frame.type == store_wire::kReleased && !is_welcome_ && reader.finished()) {
    is_closed_ = is_released_ = true;
    end("it was released");
    return;
  } else if (frame.type == store_wire::kNotice) {
    const std::string cause = reader.text();
    if (reader.finished()) {
      end(cause);
      return;
    }
  } else if (frame.type == store_wire::kExchanged && is_welcome_) {
    Exchanged exchanged{reader.text(), {}};
    const std::uint32_t count = reader.count(sizeof(std::uint32_t));
    for (std::uint32_t i = 0; i < count; ++i) {
      exchanged.values.push_back(reader.text());
    }
    if (reader.finished()) {
      exchanged_ = std::move(exchanged);
      return;
    }
  }
  is_closed_ = true;
  end("the agent of this node sent a frame that makes no sense (type " + std::to_string(frame.type) + ", " +
      std::to_string(frame.body.size()) + " bytes)");
}

bool StoreClient::take_welcome(ByteReader& reader) {
  const Bytes secret = reader.take(kSecretBytes);
  const std::uint8_t has_place = reader.u8();
  if (has_place == 1) {
    place_ = GenerationPlace::read(reader);
  }
  if (!reader.finished() || has_place > 1 || (place_ && !place_->is_valid())) {
    return false;
  }
  std::memcpy(secret_.data(), secret.data(), secret_.size());
  return true;
}

Result<std::vector<std::string>> StoreClient::exchange_while(const std::string& key, const std::string& value,
                                                             Deadline deadline, Interrupt& interrupt) {
  if (key.empty() || key.size() > store_wire::kMaxKeyBytes || value.size() > store_wire::kMaxValueBytes) {
    return Error(Code::kInvalid, "exchange of " + std::to_string(value.size()) + " bytes under '" + key +
                                     "': key or value is empty or too long");
  }
  pump();
  exchanged_.reset();
  if (over_) {
    return Error(Code::kLostPeer, *over_);
  }
  if (auto sent = send_exchange(key, value, deadline); !sent.ok()) {
    pump();
    return over_ ? Error(Code::kLostPeer, *over_) : sent.error().with_context("exchange of '" + key + "'");
  }
  Patience patience(deadline);
  for (;;) {
    // The interrupt is asked before the members are checked, because it may read the answer itself: the engine's
    // interrupt calls poll_notice(). Bytes that were read there would not wake this thread.
    HVD_TRY(interrupt.check());
    pump();
    // The notice is checked first: one that came in the same read as the values would not make notice_fd() readable
    // again.
    if (over_) {
      return Error(Code::kLostPeer, *over_);
    }
    if (exchanged_ && exchanged_->key == key) {
      std::vector<std::string> values = std::move(exchanged_->values);
      exchanged_.reset();
      return values;
    }
    interrupt.note_sleep();
    if (const auto slept = sleep(patience, "waiting for all ranks to exchange '" + key + "'"); !slept.ok()) {
      return slept.error().code() == Code::kTimeout ? name_missing(key, slept.error()) : slept.error();
    }
  }
}

Result<void> StoreClient::send_exchange(const std::string& key, const std::string& value, Deadline deadline) {
  ByteWriter body;
  body.text(key).text(value);
  const std::string frame = make_frame(store_wire::kSpec, store_wire::kExchange, body.str());
  return send_all(fd_.get(), as_bytes(frame), deadline);
}

Error StoreClient::name_missing(const std::string& key, const Error& late) {
  const std::string question = store_wire::kWhoIsMissing + key;
  Patience patience(Deadline::after(kAskTime));
  if (!send_exchange(question, "", patience.until()).ok()) {
    return late;
  }
  for (;;) {
    pump();
    if (over_) {
      return Error(Code::kLostPeer, *over_);
    }
    if (exchanged_ && exchanged_->key == question) {
      const std::vector<std::string> answer = std::move(exchanged_->values);
      exchanged_.reset();
      const bool is_known = answer.size() == 2 && !answer[0].empty();
      return is_known ? Error(Code::kTimeout, missing_text(key, answer[0], answer[1])) : late;
    }
    if (!sleep(patience, "asking who is missing").ok()) {
      return late;
    }
  }
}

void StoreClient::tell(const FailureNews& news) {
  if (!is_welcome_ || is_closed_ || ::getpid() != owner_) {
    return;
  }
  const std::string frame = make_frame(store_wire::kSpec, store_wire::kFailure, news.encode());
  const ssize_t sent = ::send(fd_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0 && static_cast<std::size_t>(sent) < frame.size()) {
    is_closed_ = true;  // half a frame was sent, so the agent could not parse anything after it
    end(kAgentDeaf);
  }
}

void StoreClient::tell_apart(const FailureNews& news) const {
  if (::getpid() == owner_) {
    // Best effort, as tell().
    [[maybe_unused]] const auto told =
        tell_once(caller_.socket_path, caller_.token, caller_.rank, news, Deadline::after(kTellTime));
  }
}

std::optional<Notice> StoreClient::poll_notice() {
  pump();
  return over_ ? std::optional<Notice>(Notice{*over_}) : std::nullopt;
}

}  // namespace hvd
