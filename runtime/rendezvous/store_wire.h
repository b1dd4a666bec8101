// This is the protocol between a rank and its node's agent, over the unix socket of contract::kAgentSocket: frames
// (base/frame.h) with the bodies below (base/bytes.h). The agent relays them to the launcher's Generations
// (launcher/membership/generations.h).
//
//   rank -> agent   Hello     text token, i32 rank
//   agent -> rank   Welcome   32 bytes secret, u8 1 and a GenerationPlace, or u8 0: the place it was started with
//                             (a process that the agent refuses loses the connection; one of an elastic job that is no
//                             member waits until it is one)
//   rank -> agent   Exchange  text key, text value
//   agent -> rank   Exchanged text key, u32 n, n x text               (once all ranks of the job have called)
//   agent -> rank   Notice    text cause                              (the job is over; see store.h)
//   agent -> rank   Changed   (empty)                                 (a new generation waits for this rank to leave)
//   agent -> rank   Growing   u8 1 or 0                               (ranks are on their way to join, or none are)
//   rank -> agent   Goodbye   (empty)                                 (this rank leaves in order)
//   rank -> agent   Failure   FailureNews (failure_news.h)            (not answered)
//   rank -> agent   Visit     text token, i32 rank                    (instead of Hello; not answered)
//
// A process that only reports a Failure, and does not join, sends Visit instead of Hello.
//
// An Exchange whose key begins with kWhoIsMissing asks who keeps the exchange under the rest of that key waiting. It is
// answered at once, by two values: the ranks that have not posted ("1-3,7"; empty if that is not known), and those of
// them that have ended.
#pragma once

#include "runtime/base/frame.h"

namespace hvd::store_wire {

inline constexpr FrameSpec kSpec{0x53445648U /* "HVDS" */, 5, 16U << 20U, "rank-agent"};

inline constexpr std::uint16_t kHello = 1;
inline constexpr std::uint16_t kWelcome = 2;
inline constexpr std::uint16_t kExchange = 3;
inline constexpr std::uint16_t kExchanged = 4;
inline constexpr std::uint16_t kNotice = 5;
inline constexpr std::uint16_t kGoodbye = 6;
inline constexpr std::uint16_t kFailure = 7;
inline constexpr std::uint16_t kVisit = 8;
inline constexpr std::uint16_t kChanged = 9;
inline constexpr std::uint16_t kReleased = 10;  // in place of Welcome: the rank is to end
inline constexpr std::uint16_t kGrowing = 11;

inline constexpr char kWhoIsMissing = '?';

// Bounds of one exchange, so that a rank cannot make the launcher's memory grow.
inline constexpr std::size_t kMaxKeyBytes = 256;
inline constexpr std::size_t kMaxValueBytes = 64U << 10U;

}  // namespace hvd::store_wire
