// These functions recognise connections that an ssh server dropped before a login, as sshd does beyond its MaxStartups,
// and say when to try again. Pure functions.
#pragma once

#include <cstdint>
#include <random>
#include <string_view>

#include "runtime/base/clock.h"

namespace hvd::launch {

enum class Dropped : std::uint8_t {
  kNo,
  kPerhaps,      // closed, but it may have been after the login, by a rule that will stand
  kBeforeLogin,  // before the server's first words
};

// Judges `errors`, the standard error of an ssh that ended with 255. It answers only when nothing else stands there:
// behind a jump host every failure looks like a drop, but ssh prints its reason first ("Permission denied", "Connection
// refused").
Dropped dropped_by(std::string_view errors);

// Returns how long to wait before the next try: about twice as long each time, up to 3 s. It is random in part, so that
// nodes do not try in step. `drops` counts from 0.
Duration drop_backoff(int drops, std::minstd_rand& jitter);

}  // namespace hvd::launch
