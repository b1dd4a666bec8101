#include "launcher/timeline/trace_events.h"

#include <algorithm>
#include <array>
#include <streambuf>

#include <nlohmann/json.hpp>

namespace hvd::launch {
namespace {

using Json = nlohmann::json;

// LineCounter hands a stream on, and knows the line that is being read.
class LineCounter final : public std::streambuf {
 public:
  explicit LineCounter(std::istream& in) : in_(in) {}

  [[nodiscard]] std::size_t line() const { return lines_before_ + newlines(); }
  [[nodiscard]] bool is_at_end() { return gptr() == egptr() && underflow() == traits_type::eof(); }

 protected:
  int_type underflow() override {
    lines_before_ += newlines();
    in_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    setg(buffer_.data(), buffer_.data(), buffer_.data() + in_.gcount());
    return gptr() == egptr() ? traits_type::eof() : traits_type::to_int_type(*gptr());
  }

 private:
  [[nodiscard]] std::size_t newlines() const { return static_cast<std::size_t>(std::count(eback(), gptr(), '\n')); }

  std::istream& in_;
  std::array<char, std::size_t{64} << 10U> buffer_{};
  std::size_t lines_before_ = 1;
};

// EventParser is told by the parser what comes next, and puts events together.
class EventParser final : public nlohmann::json_sax<Json> {
 public:
  explicit EventParser(const std::function<void(const TraceEvent&)>& take) : take_(take) {}

  // Whether an event has begun that is not whole, and whether the next one, or the end, may follow.
  [[nodiscard]] bool is_within_event() const { return is_among_events_ && depth_ > events_depth_; }
  [[nodiscard]] bool is_between_events() const { return is_among_events_ && depth_ == events_depth_; }
  [[nodiscard]] const std::string& unexpected() const { return unexpected_; }

  bool null() override { return scalar(); }
  bool boolean(bool /*value*/) override { return scalar(); }
  bool number_integer(number_integer_t value) override { return number(value, static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<std::int64_t>(value), static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return number(0, value); }
  bool binary(binary_t& /*value*/) override { return scalar(); }

  bool string(string_t& value) override {
    if (std::string* const field = text_field(); field != nullptr) {
      *field = std::move(value);
    }
    return scalar();
  }

  bool start_object(std::size_t /*size*/) override {
    if (is_between_events()) {
      event_ = TraceEvent();
    } else if (is_within_event() && depth_ == events_depth_ + 1) {
      is_in_args_ = key_ == "args";
    }
    ++depth_;
    return true;
  }

  bool key(string_t& key) override {
    key_ = std::move(key);
    return true;
  }

  bool end_object() override {
    --depth_;
    if (is_between_events()) {
      take_(event_);
    }
    return true;
  }

  bool start_array(std::size_t /*size*/) override {
    if (is_between_events()) {
      return false;
    }
    ++depth_;
    if (!is_among_events_ && (depth_ == 1 || (depth_ == 2 && key_ == "traceEvents"))) {
      is_among_events_ = true;
      events_depth_ = depth_;
    }
    return true;
  }

  bool end_array() override {
    is_among_events_ = is_among_events_ && depth_ != events_depth_;
    --depth_;
    return true;
  }

  bool parse_error(std::size_t /*position*/, const std::string& token, const nlohmann::detail::exception&) override {
    unexpected_ = token;
    return false;
  }

 private:
  // An array of events has nothing else in it.
  [[nodiscard]] bool scalar() const { return depth_ > 0 && !is_between_events(); }

  [[nodiscard]] bool is_in_args() const { return is_within_event() && depth_ == events_depth_ + 2 && is_in_args_; }

  std::string* text_field() {
    if (is_within_event() && depth_ == events_depth_ + 1) {
      return key_ == "ph" ? &event_.phase : key_ == "name" ? &event_.name : nullptr;
    }
    if (is_in_args()) {
      return key_ == "name"    ? &event_.own_name
             : key_ == "dtype" ? &event_.dtype
             : key_ == "shape" ? &event_.shape
                               : nullptr;
    }
    return nullptr;
  }

  bool number(std::int64_t whole, double value) {
    if (is_within_event() && depth_ == events_depth_ + 1) {
      if (key_ == "pid") {
        event_.pid = whole;
      } else if (key_ == "ts") {
        event_.at = value;
      } else if (key_ == "dur") {
        event_.duration = value;
      }
    } else if (is_in_args() && key_ == "records") {
      event_.records = static_cast<std::uint64_t>(std::max<std::int64_t>(whole, 0));
    }
    return scalar();
  }

  const std::function<void(const TraceEvent&)>& take_;
  TraceEvent event_;
  std::string key_;
  std::string unexpected_;
  std::size_t depth_ = 0;
  std::size_t events_depth_ = 0;
  bool is_among_events_ = false;
  bool is_in_args_ = false;
};

}  // namespace

Result<bool> read_trace(std::istream& in, const std::function<void(const TraceEvent&)>& take) {
  LineCounter counter(in);
  std::istream counted(&counter);
  EventParser parser(take);
  const bool is_whole = Json::sax_parse(counted, &parser);
  if (in.bad()) {
    return Error::from_errno("cannot read it to its end");
  }
  const bool ends_after_comma = parser.is_between_events() && parser.unexpected().ends_with(']');
  if (is_whole || ends_after_comma) {
    return false;
  }
  if (counter.is_at_end()) {
    return parser.is_within_event();
  }
  return Error(Code::kInvalid, "line " + std::to_string(counter.line()) + " is not an event of a timeline");
}

}  // namespace hvd::launch
