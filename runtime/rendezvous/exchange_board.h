// ExchangeBoard is the serving side of Store::exchange as pure logic: it records which rank has posted what under which
// key. The launcher's store server uses it behind a socket, and MemoryStore behind a mutex.
//
// Nothing that a rank posts is trusted. It refuses ranks out of range, a second post of a rank under one key, keys and
// values that are too long, and more open keys than a healthy job can have. It never grows beyond these bounds. Thread:
// one at a time; the owner locks.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace hvd {

class ExchangeBoard {
 public:
  // Ranks exchange one key at a time, so only a few keys are open, while ranks enter and leave an exchange. This many
  // mean that a rank invents keys.
  static constexpr std::size_t kMaxOpenKeys = 64;

  using Values = std::vector<std::string>;  // in rank order

  explicit ExchangeBoard(int size);

  // Returns all values when `rank` was the last one to post under `key`; the key is forgotten then. nullopt: other
  // ranks are missing. An error says why the post is refused; a refused post changes nothing.
  Result<std::optional<Values>> post(int rank, const std::string& key, std::string value);

  [[nodiscard]] std::size_t open_keys() const { return open_.size(); }
  // The ranks that have not posted under `key` yet; empty for a key that is not open.
  [[nodiscard]] std::vector<int> missing(const std::string& key) const;

 private:
  struct Exchange {
    std::vector<std::optional<std::string>> values;
    int posted = 0;
    std::size_t bytes = 0;  // size of the Exchanged body so far
  };

  [[nodiscard]] Result<void> check(int rank, const std::string& key, const std::string& value) const;

  int size_;
  std::map<std::string, Exchange> open_;
};

}  // namespace hvd
