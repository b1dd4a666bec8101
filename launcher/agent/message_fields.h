// Parts that several messages of launcher and agent have in common, and what their decoders say of bytes that mean
// nothing.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/result.h"

namespace hvd::launch {

using Pairs = std::vector<std::pair<std::string, std::string>>;

void put_pairs(ByteWriter& out, const Pairs& pairs);
Pairs take_pairs(ByteReader& in);
void put_texts(ByteWriter& out, const std::vector<std::string>& texts);
std::vector<std::string> take_texts(ByteReader& in);
void put_numbers(ByteWriter& out, const std::vector<std::int32_t>& numbers);
std::vector<std::int32_t> take_numbers(ByteReader& in);

// `what`: the message's name.
Error malformed(const char* what);

}  // namespace hvd::launch
