// ExchangeBoard: the serving side of Store::exchange as pure logic: who has posted what under which key. The launcher's
// store server and MemoryStore put it behind a socket and a mutex.
//
// Everything that a rank posts is refused rather than trusted: ranks out of range, a rank twice under one key, oversize
// keys and values, and more open keys than a job that goes well can have. It never grows beyond these bounds.
// Thread: one at a time; the owner locks.
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
  // Ranks exchange one key at a time, so that a few keys are open only while ranks enter and leave; this many mean that
  // a rank makes up keys.
  static constexpr std::size_t kMaxOpenKeys = 64;

  using Values = std::vector<std::string>;  // in rank order

  explicit ExchangeBoard(int size);

  // All values when `rank` was the last one to post under `key` (which is forgotten then), nullopt while others are
  // missing, or why the post is refused; a refused post changes nothing.
  Result<std::optional<Values>> post(int rank, const std::string& key, std::string value);

  [[nodiscard]] std::size_t open_keys() const { return open_.size(); }
  // The ranks that have not posted under `key` yet; empty for a key that is not open.
  [[nodiscard]] std::vector<int> missing(const std::string& key) const;

 private:
  struct Exchange {
    std::vector<std::optional<std::string>> values;
    int posted = 0;
    std::size_t bytes = 0;  // of the Exchanged body so far
  };

  [[nodiscard]] Result<void> check(int rank, const std::string& key, const std::string& value) const;

  int size_;
  std::map<std::string, Exchange> open_;
};

}  // namespace hvd
