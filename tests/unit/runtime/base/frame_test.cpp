#include "runtime/base/frame.h"

#include <random>

#include <doctest/doctest.h>

namespace hvd::frame_test {
namespace {

constexpr FrameSpec kSpec{0x54534554U, 3, 1000, "test"};

// All frames of `stream`, fed in chunks of the given sizes in turn; or the error.
Result<std::vector<Frame>> decode(std::string_view stream, const std::vector<std::size_t>& chunk_sizes) {
  FrameDecoder decoder(kSpec);
  std::vector<Frame> frames;
  for (std::size_t i = 0; !stream.empty(); ++i) {
    const std::string_view chunk = stream.substr(0, chunk_sizes[i % chunk_sizes.size()]);
    stream.remove_prefix(chunk.size());
    decoder.feed(as_bytes(chunk));
    for (;;) {
      HVD_TRY_ASSIGN(std::optional<Frame> frame, decoder.next());
      if (!frame) {
        break;
      }
      frames.push_back(std::move(*frame));
    }
  }
  return frames;
}

std::string header(std::uint32_t magic, std::uint16_t version, std::uint16_t type, std::uint32_t length) {
  ByteWriter out;
  out.u32(magic).u16(version).u16(type).u32(length);
  return out.str();
}

}  // namespace

TEST_CASE("any chunking of a stream gives the same frames") {
  std::string stream;
  std::vector<std::string> bodies = {"", "a", std::string(1000, 'x'), std::string("\0\1\2", 3), ""};
  std::uint16_t type = 1;
  for (const std::string& body : bodies) {
    append_frame(stream, kSpec, type++, body);
  }
  for (const auto& sizes : std::vector<std::vector<std::size_t>>{{1}, {2}, {7}, {12}, {13}, {1, 500}, {100000}}) {
    const auto frames = decode(stream, sizes);
    REQUIRE(frames.ok());
    REQUIRE(frames.value().size() == bodies.size());
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      CHECK(frames.value()[i].type == i + 1);
      CHECK(frames.value()[i].body == bodies[i]);
    }
  }
}

TEST_CASE("a long stream does not grow the decoder") {
  FrameDecoder decoder(kSpec);
  const std::string frame = make_frame(kSpec, 1, std::string(900, 'y'));
  std::size_t got = 0;
  for (int i = 0; i < 1000; ++i) {
    decoder.feed(as_bytes(frame));
    const auto next = decoder.next();
    REQUIRE(next.ok());
    got += next.value() ? 1U : 0U;
    CHECK(decoder.buffered() == 0);
  }
  CHECK(got == 1000);
}

TEST_CASE("a wrong magic, a wrong version and an oversize length are refused at the header") {
  const auto wrong_magic = decode(header(1, 3, 1, 0), {100});
  REQUIRE_FALSE(wrong_magic.ok());
  CHECK(wrong_magic.error().code() == Code::kProtocol);
  const auto wrong_version = decode(header(kSpec.magic, 4, 1, 0), {100});
  REQUIRE_FALSE(wrong_version.ok());
  CHECK(wrong_version.error().message().find("version 4, expected 3") != std::string::npos);
  const auto oversize = decode(header(kSpec.magic, 3, 1, 1001), {100});
  REQUIRE_FALSE(oversize.ok());
  CHECK(oversize.error().message().find("1001") != std::string::npos);
}

TEST_CASE("after an error the decoder stays failed whatever comes") {
  FrameDecoder decoder(kSpec);
  decoder.feed(as_bytes("not a frame at all"));
  CHECK_FALSE(decoder.next().ok());
  decoder.feed(as_bytes(make_frame(kSpec, 1, "good")));
  CHECK_FALSE(decoder.next().ok());
}

TEST_CASE("random bytes are decoded or refused, in any chunking alike") {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::string stream = round % 2 == 0 ? make_frame(kSpec, 9, "body") : "";
    const std::size_t extra = random() % 64;
    for (std::size_t i = 0; i < extra; ++i) {
      stream += static_cast<char>(random());
    }
    const auto whole = decode(stream, {1000});
    const auto bytewise = decode(stream, {1});
    REQUIRE(whole.ok() == bytewise.ok());
    if (whole.ok()) {
      CHECK(whole.value().size() == bytewise.value().size());
    }
  }
}

}  // namespace hvd::frame_test
