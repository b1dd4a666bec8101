#include "runtime/execute/quick_head.h"

#include <cstring>

namespace hvd {
namespace {

// The shape's extents and the name follow it.
struct Head {
  std::uint32_t bytes = sizeof(Head);  // with the extents and the name
  OpKind kind{};
  Dtype dtype{};
  ReduceOp op{};
  std::uint8_t ndim = 0;
  std::int32_t root_index = 0;
  std::uint16_t name_bytes = 0;
  std::uint8_t round = 0;
  std::uint8_t reserved = 0;
  std::uint64_t noname = 0;
  double prescale = 1.0;
  double postscale = 1.0;
};
static_assert(sizeof(Head) == kQuickHeadFields);  // without holes, since it is compared as bytes
static_assert(QuickPath::kMaxNameBytes <= UINT16_MAX);

}  // namespace

void write_quick_head(std::uint8_t* to, const QuickOp& op, std::uint8_t round) {
  Head head;
  head.kind = op.kind;
  head.dtype = op.dtype;
  head.op = op.op;
  head.ndim = static_cast<std::uint8_t>(op.shape.size());
  head.root_index = op.root_index;
  head.name_bytes = static_cast<std::uint16_t>(op.name.size());
  head.round = round;
  head.noname = op.noname;
  head.prescale = op.prescale;
  head.postscale = op.postscale;
  head.bytes = static_cast<std::uint32_t>(quick_head_bytes(op));
  std::uint8_t* at = to;
  const auto put = [&at](const void* from, std::size_t bytes) {
    if (bytes != 0) {
      std::memcpy(at, from, bytes);
    }
    at += bytes;
  };
  put(&head, sizeof head);
  put(op.shape.data(), op.shape.size_bytes());
  put(op.name.data(), op.name.size());
}

}  // namespace hvd
