#include "runtime/core/tuning.h"

#include <array>

#include "runtime/base/bytes.h"
#include "runtime/base/text.h"

namespace hvd {
namespace {

constexpr std::uint16_t kLayoutVersion = 2;
constexpr std::size_t kKi = 1U << 10U;
constexpr std::size_t kMi = 1U << 20U;
constexpr std::size_t kGi = 1U << 30U;

// A slot of the quick path holds 128 KiB; the result of a small reduction is one block of 8 KiB.
constexpr std::array<TuningField, 10> kFields = {{{"quick_bytes", &Tuning::quick_bytes, 0, 128 * kKi},
                                                  {"quick_whole_bytes", &Tuning::quick_whole_bytes, 0, 128 * kKi},
                                                  {"quick_read_bytes", &Tuning::quick_read_bytes, 0, kGi},
                                                  {"small_bytes", &Tuning::small_bytes, 0, 8 * kKi},
                                                  {"small_read_bytes", &Tuning::small_read_bytes, 0, kGi},
                                                  {"chunk_bytes", &Tuning::chunk_bytes, 64 * kKi, 64 * kMi},
                                                  {"segment_bytes", &Tuning::segment_bytes, 64 * kKi, kGi},
                                                  {"wire_bytes", &Tuning::wire_bytes, 4 * kKi, 64 * kMi},
                                                  {"pairs_bytes", &Tuning::pairs_bytes, 0, 64 * kMi},
                                                  {"fusion_bytes", &Tuning::fusion_bytes, 0, 1024 * kGi}}};

}  // namespace

std::span<const TuningField> tuning_fields() {
  return kFields;
}

Result<void> check(const Tuning& tuning) {
  for (const TuningField& field : kFields) {
    const std::size_t value = tuning.*field.value;
    if (value < field.least || value > field.most) {
      return Error(Code::kInvalid, std::string(field.name) + " is " + std::to_string(value) + ", expected " +
                                       std::to_string(field.least) + " to " + std::to_string(field.most));
    }
  }
  for (const auto part : {&Tuning::chunk_bytes, &Tuning::wire_bytes}) {
    if (tuning.*part % kTuningGrain != 0) {
      return Error(Code::kInvalid, std::string(part == &Tuning::chunk_bytes ? "chunk_bytes" : "wire_bytes") + " is " +
                                       std::to_string(tuning.*part) + ", expected a multiple of " +
                                       std::to_string(kTuningGrain));
    }
  }
  return {};
}

std::string text_of(const Tuning& tuning) {
  std::string text;
  for (const TuningField& field : kFields) {
    add_to_list(text, std::string(field.name) + " " + std::to_string(tuning.*field.value));
  }
  return text;
}

std::string encode(const Tuning& tuning) {
  ByteWriter out;
  out.u16(kLayoutVersion);
  for (const TuningField& field : kFields) {
    out.u64(tuning.*field.value);
  }
  return std::move(out).str();
}

Result<Tuning> decode_tuning(std::string_view word) {
  ByteReader in(word);
  if (const std::uint16_t version = in.u16(); in.ok() && version != kLayoutVersion) {
    return Error(Code::kProtocol, "another version of libhvd (tuning version " + std::to_string(version) + ", here " +
                                      std::to_string(kLayoutVersion) + ")");
  }
  Tuning tuning;
  for (const TuningField& field : kFields) {
    tuning.*field.value = in.u64();
  }
  if (!in.finished()) {
    return Error(Code::kProtocol, "a tuning that makes no sense");
  }
  if (const auto checked = check(tuning); !checked.ok()) {
    return Error(Code::kProtocol, checked.error().message());
  }
  return tuning;
}

}  // namespace hvd
