// Connections that an ssh server dropped before anybody logged in, as sshd does with those beyond its MaxStartups: what
// ssh says of one, and when to try again. Pure functions.
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

// What `errors`, the standard error of an ssh that ended with 255, say of it. Only when they say nothing else: behind a
// jump host every failure looks like a drop, but ssh tells its reason first ("Permission denied", "Connection
// refused").
Dropped dropped_by(std::string_view errors);

// How long to wait before the next try: about twice as long each time, up to 3 s, spread so that nodes do not move in
// step. `drops` counts from 0.
Duration drop_backoff(int drops, std::minstd_rand& jitter);

}  // namespace hvd::launch
