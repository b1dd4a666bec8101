#include "launcher/service/ticket.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include <stdio.h>

#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

constexpr std::uint32_t kMagic = 0x4b545648;  // "HVTK"
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kLeastText = 4;  // bytes of a text's length

std::vector<std::string> texts_of(ByteReader& reader) {
  std::vector<std::string> texts(reader.count(kLeastText));
  for (std::string& text : texts) {
    text = reader.text();
  }
  return texts;
}

void put_texts(ByteWriter& writer, const std::vector<std::string>& texts) {
  writer.u32(static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) {
    writer.text(text);
  }
}

Error unwritten(const std::string& path) {
  const char* hint = errno == ENOSPC || errno == EDQUOT
                         ? "; free some space, or set XDG_STATE_HOME to another place"
                         : "; make its folder writable, or set XDG_STATE_HOME to another";
  return Error(Code::kResource,
               Error::from_errno("cannot write what the job is started with, " + path).message() + hint);
}

}  // namespace

std::string encode(const Ticket& ticket) {
  ByteWriter writer;
  writer.u32(kMagic).u32(kVersion);
  put_texts(writer, ticket.words);
  put_texts(writer, ticket.environment);
  writer.text(ticket.cwd).text(ticket.file).text(ticket.text).u32(ticket.umask);
  return std::move(writer).str();
}

Result<Ticket> decode_ticket(std::string_view bytes) {
  ByteReader reader(bytes);
  if (reader.u32() != kMagic || reader.u32() != kVersion) {
    return Error(Code::kProtocol, "this is no ticket of a job, or that of another hvdrun");
  }
  Ticket ticket;
  ticket.words = texts_of(reader);
  ticket.environment = texts_of(reader);
  ticket.cwd = reader.text();
  ticket.file = reader.text();
  ticket.text = reader.text();
  ticket.umask = reader.u32() & 0777U;
  return reader.finished() ? Result<Ticket>(std::move(ticket))
                           : Result<Ticket>(Error(Code::kProtocol, "the ticket of the job is not whole"));
}

Result<void> write_ticket(const std::string& path, const Ticket& ticket) {
  const std::string beside = path + ".new";
  const Fd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) {
    return unwritten(path);
  }
  if (!write_all(file.get(), encode(ticket))) {
    const Error why = unwritten(path);
    ::unlink(beside.c_str());
    return why;
  }
  if (::fsync(file.get()) != 0 || ::rename(beside.c_str(), path.c_str()) != 0) {
    const Error why = unwritten(path);
    ::unlink(beside.c_str());
    return why;
  }
  return {};
}

void remove_ticket(const std::string& path) {
  ::unlink(path.c_str());
  ::unlink((path + ".new").c_str());
}

Result<Ticket> read_ticket(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  if (!file || !(bytes << file.rdbuf())) {
    return Error(Code::kResource,
                 Error::from_errno("cannot read what the job is started with, " + path, errno).message());
  }
  auto ticket = decode_ticket(std::move(bytes).str());
  return ticket.ok() ? ticket : Result<Ticket>(ticket.error().with_context(path));
}

}  // namespace hvd::launch
