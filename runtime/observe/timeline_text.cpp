#include "runtime/observe/timeline_text.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/text.h"

namespace hvd {
namespace {

// No event is longer than this, apart from a tensor's name and shape.
constexpr std::size_t kEventBytes = 512;
constexpr std::string_view kBetween = ",\n";
constexpr std::string_view kEnd = "\n]\n";
constexpr std::string_view kRow = R"(,"tid":0)";
constexpr std::string_view kAheadRow = R"(,"tid":1)";

std::string phase_name(TracePhase phase, OpKind op) {
  switch (phase) {
    case TracePhase::kNegotiate:
      return std::string("NEGOTIATE_") + name_of(op);
    case TracePhase::kOperation:
      return name_of(op);
    case TracePhase::kQueue:
      return "QUEUE";
    case TracePhase::kPack:
      return "MEMCPY_IN_FUSION_BUFFER";
    case TracePhase::kMove:
      return std::string("HVD_") + name_of(op);
    case TracePhase::kUnpack:
      return "MEMCPY_OUT_FUSION_BUFFER";
  }
  return "?";
}

// Returns the length of the UTF-8 character at the front (RFC 3629), 0 if there is none.
std::size_t utf8_bytes(std::string_view text) {
  const auto at = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t bytes = at(0) < 0x80   ? 1
                            : at(0) < 0xc2 ? 0
                            : at(0) < 0xe0 ? 2
                            : at(0) < 0xf0 ? 3
                            : at(0) < 0xf5 ? 4
                                           : 0;
  if (bytes == 0 || text.size() < bytes) {
    return 0;
  }
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xc0U) != 0x80U) {
      return 0;
    }
  }
  // These are overlong forms, surrogates, and values beyond the last character.
  const bool is_wrong = (at(0) == 0xe0 && at(1) < 0xa0) || (at(0) == 0xed && at(1) > 0x9f) ||
                        (at(0) == 0xf0 && at(1) < 0x90) || (at(0) == 0xf4 && at(1) > 0x8f);
  return is_wrong ? 0 : bytes;
}

// The payload is there, because it was put together with the record that gives the number of payloads.
std::uint64_t next_payload(TraceRing& ring) {
  const auto payload = ring.take();
  HVD_CHECK(payload && payload->kind == TraceRecord::Kind::kPayload);
  return payload->ticks;
}

// "12.345" for 12345 nanoseconds.
void append_micros(std::string& text, std::uint64_t ns) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), ns / 1000).ptr;
  const auto part = static_cast<unsigned>(ns % 1000);
  const std::array<char, 4> fraction = {'.', static_cast<char>('0' + part / 100),
                                        static_cast<char>('0' + part / 10 % 10), static_cast<char>('0' + part % 10)};
  text.append(digits.data(), end).append(fraction.data(), fraction.size());
}

// The name of a stage's events, and that of its row.
struct StageNames {
  std::string_view event;
  std::string_view row;
};
constexpr std::array<StageNames, kStageCount> kStageNames = {{{"HOST_REDUCE", "this host: pack and reduce"},
                                                              {"WIRE", "between hosts"},
                                                              {"HOST_SHARE", "this host: take the result"}}};

}  // namespace

std::string json_text(std::string_view text) {
  std::string json;
  while (!text.empty()) {
    const std::size_t bytes = utf8_bytes(text);
    const auto c = static_cast<unsigned char>(text.front());
    if (bytes == 0) {
      json += "\xef\xbf\xbd";
    } else if (c < 0x20 || c == 0x7f) {
      json += formatted("\\u%04x", static_cast<unsigned>(c));
    } else {
      json += c == '"' || c == '\\' ? "\\" : "";
      json += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(1, bytes));
  }
  return json;
}

TimelineText::TimelineText() : base_ticks_(scale_.began()) {
  for (std::size_t op = 0; op < begins_.size(); ++op) {
    for (std::size_t phase = 0; phase < begins_[op].size(); ++phase) {
      const std::string name = R"({"name":")" + phase_name(static_cast<TracePhase>(phase), static_cast<OpKind>(op));
      begins_[op][phase] = name + R"(","ph":"B","pid":)";
      ends_[op][phase] = name + R"(","ph":"E","pid":)";
    }
  }
}

void TimelineText::begin() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  make_room(kEventBytes);
  put("[\n"
      R"({"name":"start_time","ph":"M","pid":0,"args":{"start_time_since_epoch_in_micros":)");
  put_number(static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count()));
  put("}}");
}

// Times that were written stay; later ones continue from here at the new rate.
void TimelineText::look_at_clock() {
  const std::uint64_t now = ticks_now();
  base_ns_ += static_cast<double>(ticks_between(base_ticks_, now)) * ns_per_tick_;
  base_ticks_ = now;
  const double ns_per_tick = scale_.seconds_per_tick() * 1e9;
  if (ns_per_tick_ == 0) {
    base_ns_ = static_cast<double>(ticks_between(scale_.began(), now)) * ns_per_tick;
  }
  ns_per_tick_ = ns_per_tick;
}

// Returns nanoseconds since the timeline began. The event may have happened before the clock was last measured.
std::uint64_t TimelineText::ns_of(std::uint64_t ticks) const {
  const auto since = static_cast<double>(static_cast<std::int64_t>(ticks - base_ticks_));
  return static_cast<std::uint64_t>(std::max(0.0, base_ns_ + since * ns_per_tick_));
}

void TimelineText::set_time(std::uint64_t ticks) {
  if (ticks == told_ticks_) {
    return;
  }
  told_ticks_ = ticks;
  time_.assign(R"(,"ts":)");
  append_micros(time_, ns_of(ticks));
}

bool TimelineText::add_next(TraceRing& ring) {
  const auto record = ring.take();
  if (!record) {
    return false;
  }
  switch (record->kind) {
    case TraceRecord::Kind::kPhases:
      add_phases(*record);
      return true;
    case TraceRecord::Kind::kRank:
      add_phases(*record);
      add_rank(*record);
      return true;
    case TraceRecord::Kind::kCycle:
      set_time(record->ticks);
      make_room(kEventBytes);
      put(kBetween);
      put(R"({"name":"CYCLE_START","ph":"i","s":"g","pid":0,"tid":0)");
      put(time_);
      put("}");
      return true;
    case TraceRecord::Kind::kName:
      add_name(*record, ring);
      return true;
    case TraceRecord::Kind::kShape:
      take_shape(*record, ring);
      return true;
    case TraceRecord::Kind::kStage:
      add_stage(*record, ring);
      return true;
    case TraceRecord::Kind::kPayload:
      return true;  // it never comes without the record to which it belongs
  }
  return true;
}

void TimelineText::add_phases(const TraceRecord& record) {
  set_time(record.ticks);
  for (int i = kTracePhases - 1; i >= 0 && record.ends != 0; --i) {
    if (const auto phase = static_cast<TracePhase>(i); (record.ends & bit_of(phase)) != 0) {
      add_phase(record, phase, ends_);
    }
  }
  for (int i = 0; i < kTracePhases && record.begins != 0; ++i) {
    if (const auto phase = static_cast<TracePhase>(i); (record.begins & bit_of(phase)) != 0) {
      add_phase(record, phase, begins_);
    }
  }
}

TimelineText::Tensor& TimelineText::tensor_of(const TraceRecord& record) {
  tensors_.resize(std::max<std::size_t>(tensors_.size(), record.tensor + 1));
  return tensors_[record.tensor];
}

void TimelineText::add_phase(const TraceRecord& record, TracePhase phase, const Heads& heads) {
  Tensor& tensor = tensor_of(record);
  const bool begins = &heads == &begins_;
  if (begins) {
    tensor.is_ahead =
        phase == TracePhase::kNegotiate ? (tensor.open & bit_of(TracePhase::kOperation)) != 0 : tensor.is_ahead;
    tensor.open |= bit_of(phase);
    ++open_phases_;
  } else {
    tensor.open &= ~bit_of(phase);
    --open_phases_;
  }
  const bool is_ahead = phase == TracePhase::kNegotiate && tensor.is_ahead;
  if (is_ahead && !std::exchange(tensor.has_ahead_row, true)) {
    name_ahead_row(record.tensor);
  }
  const bool tells_shape = !begins && phase == TracePhase::kOperation && record.value != TraceRecord::kShapeDropped;
  const std::string_view arguments = tells_shape ? std::string_view(tensor.arguments) : std::string_view("");
  make_room(kEventBytes + arguments.size());
  put(kBetween);
  put(heads[record.op][static_cast<std::size_t>(phase)]);
  put_number(record.tensor);
  put(is_ahead ? kAheadRow : kRow);
  put(time_);
  put(arguments);
  put("}");
}

void TimelineText::name_ahead_row(std::uint64_t tensor) {
  make_room(kEventBytes);
  put(kBetween);
  put(R"({"name":"thread_name","ph":"M","pid":)");
  put_number(tensor);
  put(kAheadRow);
  put(R"(,"args":{"name":"asked for again"}})");
}

void TimelineText::add_rank(const TraceRecord& record) {
  make_room(kEventBytes);
  put(kBetween);
  put(R"({"name":")");
  put_number(record.value);
  put(R"(","ph":"X","pid":)");
  put_number(record.tensor);
  put(tensor_of(record).is_ahead ? kAheadRow : kRow);
  put(time_);
  put(R"(,"dur":0})");
}

void TimelineText::add_name(const TraceRecord& record, TraceRing& ring) {
  std::string name;
  for (std::size_t i = TraceRecord::payloads_of(record.value); i > 0; --i) {
    const std::uint64_t payload = next_payload(ring);
    std::array<char, sizeof payload> bytes{};
    std::memcpy(bytes.data(), &payload, sizeof payload);
    name.append(bytes.data(), std::min<std::size_t>(bytes.size(), record.value - name.size()));
  }
  name = json_text(name);
  make_room(2 * kEventBytes + name.size());
  put(kBetween);
  put(R"({"name":"process_name","ph":"M","pid":)");
  put_number(record.tensor);
  put(R"(,"args":{"name":")");
  put(name);
  put(R"("}})");
  put(kBetween);
  put(R"({"name":"process_sort_index","ph":"M","pid":)");
  put_number(record.tensor);
  put(R"(,"args":{"sort_index":)");
  put_number(record.tensor);
  put("}}");
}

// Stages of several parts overlap, so each kind has a row (a "thread") of the process 0, which is the job itself.
void TimelineText::add_stage(const TraceRecord& record, TraceRing& ring) {
  const std::uint64_t began = ns_of(record.ticks);
  const std::uint64_t ended = std::max(began, ns_of(next_payload(ring)));
  const std::uint64_t bytes = next_payload(ring);
  const std::size_t stage = std::min<std::size_t>(record.value, kStageNames.size() - 1);
  const std::string row = R"(,"pid":0,"tid":)" + std::to_string(stage + 1);
  std::string text;
  if (!std::exchange(has_row_[stage], true)) {
    text.append(kBetween).append(R"({"name":"thread_name","ph":"M")").append(row);
    text.append(R"(,"args":{"name":")").append(kStageNames[stage].row).append(R"("}})");
  }
  text.append(kBetween).append(R"({"name":")").append(kStageNames[stage].event).append(R"(","ph":"X")").append(row);
  text.append(R"(,"ts":)");
  append_micros(text, began);
  text.append(R"(,"dur":)");
  append_micros(text, ended - began);
  text.append(R"(,"args":{"bytes":)").append(std::to_string(bytes)).append("}}");
  make_room(text.size());
  put(text);
}

void TimelineText::take_shape(const TraceRecord& record, TraceRing& ring) {
  std::string& arguments = tensor_of(record).arguments;
  if (record.op == TraceRecord::kNoShape) {
    arguments.clear();
    return;
  }
  std::string extents;
  for (unsigned i = 0; i < record.value; ++i) {
    extents += (i > 0 ? ", " : "") + std::to_string(static_cast<std::int64_t>(next_payload(ring)));
  }
  arguments = R"(,"args":{"dtype":")" + std::string(name_of(static_cast<Dtype>(record.op))) + R"(","shape":"[)" +
              extents + R"(]"})";
}

void TimelineText::add_dropped(std::uint64_t records) {
  set_time(ticks_now());
  make_room(kEventBytes);
  put(kBetween);
  put(R"({"name":"DROPPED","ph":"i","s":"g","pid":0,"tid":0)");
  put(time_);
  put(R"(,"args":{"records":)");
  put_number(records);
  put("}}");
}

std::string_view TimelineText::with_end(std::size_t least) {
  const std::size_t bytes = bytes_;
  make_room(kEventBytes + least);
  if (has_open_phases()) {
    set_time(ticks_now());
    put(kBetween);
    put(R"({"name":"TIMELINE_END","ph":"i","s":"g","pid":0,"tid":0)");
    put(time_);
    put("}");
  }
  while (bytes_ + kEnd.size() < least) {
    put(" ");
  }
  put(kEnd);
  const std::size_t all = std::exchange(bytes_, bytes);
  return {text_.data(), all};
}

void TimelineText::make_room(std::size_t bytes) {
  if (text_.size() - bytes_ < bytes) {
    text_.resize(2 * text_.size() + bytes);
  }
}

void TimelineText::put(std::string_view text) {
  std::memcpy(text_.data() + bytes_, text.data(), text.size());
  bytes_ += text.size();
}

void TimelineText::put_number(std::uint64_t number) {
  char* const at = text_.data() + bytes_;
  bytes_ += static_cast<std::size_t>(std::to_chars(at, text_.data() + text_.size(), number).ptr - at);
}

}  // namespace hvd
