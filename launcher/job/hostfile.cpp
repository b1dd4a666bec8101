#include "launcher/job/hostfile.h"

#include "launcher/job/host_list.h"
#include "launcher/job/text_file.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostBytes = std::size_t{16} << 20U;
// This also limits all entries together: more is a typing error.
constexpr int kMostSlots = 1'000'000;

struct Word {
  std::string_view text;
  std::size_t column = 0;  // from 1
};

std::vector<Word> words_of(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  line = line.substr(0, line.find('#'));
  std::vector<Word> words;
  std::size_t at = line.find_first_not_of(kBlank);
  while (at != std::string_view::npos) {
    const std::size_t end = std::min(line.find_first_of(kBlank, at), line.size());
    words.push_back({line.substr(at, end - at), at + 1});
    at = line.find_first_not_of(kBlank, end);
  }
  return words;
}

Result<int> number_of(std::string_view key, std::string_view value, const std::string& where) {
  const std::optional<int> number = parse_number<int>(value, 1, kMostSlots);
  if (!number) {
    return Error(Code::kInvalid, where + ": expected a number of 1 or more (at most 1000000) after '" +
                                     std::string(key) + "=', found '" + shown_text(value) + "'");
  }
  return *number;
}

// Applies "slots=4". "max_slots=8" is accepted and ignored. In "node1:2222 slots=4" the number after the name can only
// be the port.
Result<void> apply_setting(HostList& hosts, bool has_number, const Word& word, const std::string& where) {
  const auto equals = word.text.find('=');
  const std::string_view key = word.text.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? std::string_view() : word.text.substr(equals + 1);
  if (key != "slots" && key != "max_slots" && key != "max-slots") {
    return Error(Code::kInvalid, where + ": expected slots=N, found '" + shown_text(word.text) + "'");
  }
  HVD_TRY_ASSIGN(const int number, number_of(key, value, where));
  if (key != "slots") {
    return {};
  }
  for (HostSpec& host : hosts) {
    if (has_number && host.port == 0) {
      host.port = host.slots;
    } else if (has_number) {
      return Error(Code::kInvalid, where + ": the slots are given twice, after ':' and as " + shown_text(word.text));
    }
    if (host.port > 65535) {
      return Error(Code::kInvalid, where + ": " + std::to_string(host.port) + " is no SSH port");
    }
    host.slots = number;
  }
  return {};
}

}  // namespace

Result<HostList> parse_hostfile(std::string_view text, const std::string& file) {
  HostList hosts;
  std::size_t line_number = 0;
  while (!text.empty()) {
    const std::vector<Word> words = words_of(take_until(text, '\n'));
    ++line_number;
    if (words.empty()) {
      continue;
    }
    const auto where = [&](const Word& word) {
      return file + ":" + std::to_string(line_number) + ":" + std::to_string(word.column);
    };
    HVD_TRY_ASSIGN(HostList line, parse_host_entry(words.front().text, where(words.front())));
    const bool has_number = words.front().text.find(':', words.front().text.rfind(']') + 1) != std::string_view::npos;
    for (std::size_t i = 1; i < words.size(); ++i) {
      HVD_TRY(apply_setting(line, has_number, words[i], where(words[i])));
    }
    hosts.insert(hosts.end(), line.begin(), line.end());
  }
  if (hosts.empty()) {
    return Error(Code::kInvalid, file + ": names no host; write one a line, as in 'node1 slots=4'");
  }
  return merge_repeated(std::move(hosts));
}

Result<HostList> read_hostfile(const std::string& file) {
  HVD_TRY_ASSIGN(const std::string text, read_text_file(file, "the host file", kMostBytes + 1));
  if (text.size() > kMostBytes) {
    return Error(Code::kInvalid, file + ": a host file of more than " + std::to_string(kMostBytes) + " bytes");
  }
  return parse_hostfile(text, file);
}

}  // namespace hvd::launch
