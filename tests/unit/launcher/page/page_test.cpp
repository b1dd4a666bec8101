// launcher/page: from the events of a job to its page.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/page/job_history.h"
#include "launcher/page/job_page.h"
#include "launcher/page/page_file.h"
#include "launcher/page/page_text.h"
#include "tests/support/still_clock.h"

namespace hvd::launch::page_test {
namespace {

std::string at(int ms, const std::string& rest) {
  const std::string padded = std::to_string(100000 + ms).substr(1);
  return R"({"time":"2026-11-22T12:00:)" + padded.substr(0, 2) + "." + padded.substr(2) + R"(Z",)" + rest + "}";
}

std::string started(int ms = 0) {
  return at(ms, R"("event":"job_started","version":"1.2","job":"j7","size":3,"argv":["python","a<b>.py"],"cwd":"/w",)"
                R"("nodes":[{"node":0,"host":"n1","transport":"ssh","ranks":[0,1]},)"
                R"({"node":1,"host":"n2","transport":"ssh","ranks":[2]}])");
}
std::string ready(int ms, int node) {
  return at(ms, R"("event":"node_ready","cores":8,"gpus":2,"node":)" + std::to_string(node));
}
std::string rank_started(int ms, int rank, int node) {
  return at(ms,
            R"("event":"rank_started","pid":41,"rank":)" + std::to_string(rank) + R"(,"node":)" + std::to_string(node));
}
std::string rank_ended(int ms, int rank, int node, int code, const std::string& signal = "null") {
  return at(ms, R"("event":"rank_ended","rank":)" + std::to_string(rank) + R"(,"node":)" + std::to_string(node) +
                    R"(,"exit_code":)" + std::to_string(code) + R"(,"signal_name":)" + signal);
}
const std::string kFailure =
    at(2000, R"("event":"failure","causes":["rank 1 on n1 exited with code 3"],"exit_code":3,)"
             R"("rank":1,"node":0,"host":"n1","exception":"ValueError: <bad>","frame":"t.py:3",)"
             R"("last_errors":["Traceback","ValueError: <bad>"],"kept_in":"/k/rank.1")");
const std::string kEnded = at(2500, R"("event":"job_ended","exit_code":3,"seconds":2.5,"output_kept":true,)"
                                    R"("ranks":{"succeeded":0,"failed":3,"lost":0,"not_started":0})");

JobHistory history_of(const std::vector<std::string>& lines) {
  JobHistory history;
  for (const std::string& line : lines) {
    history.add(line);
  }
  return history;
}

std::vector<std::string> failed_job() {
  return {started(),
          ready(100, 0),
          ready(200, 1),
          rank_started(300, 0, 0),
          rank_started(300, 1, 0),
          rank_started(400, 2, 1),
          rank_ended(2000, 1, 0, 3),
          kFailure,
          rank_ended(2400, 0, 0, 143, R"("SIGTERM")"),
          rank_ended(2500, 2, 1, 143, R"("SIGTERM")"),
          kEnded};
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto from = text.find(part); from != std::string::npos; from = text.find(part, from + 1)) {
    ++found;
  }
  return found;
}

}  // namespace

TEST_CASE("a history has the nodes, the processes of ranks and the first failure") {
  const JobHistory history = history_of(failed_job());
  CHECK(history.argv() == std::vector<std::string>{"python", "a<b>.py"});
  CHECK(history.began() == "2026-11-22T12:00:00.000Z");
  CHECK(history.latest() == doctest::Approx(2.5));
  REQUIRE(history.nodes().size() == 2);
  CHECK(history.nodes()[1].host == "n2");
  CHECK(*history.nodes()[1].ready == doctest::Approx(0.2));
  REQUIRE(history.ranks().size() == 3);
  CHECK(history.ranks()[2].node == 1);
  REQUIRE(history.ranks()[1].processes.size() == 1);
  CHECK(history.ranks()[1].processes[0].how == "exited with code 3");
  CHECK(*history.ranks()[0].processes[0].time.to == doctest::Approx(2.4));
  CHECK(history.failure()->rank == 1);
  CHECK(history.end()->failed == 3);
}

TEST_CASE("a host that is lost takes its ranks with it, and an absence ends when the host is back") {
  const JobHistory history =
      history_of({started(), rank_started(100, 0, 0), rank_started(100, 1, 0), rank_started(100, 2, 1),
                  at(500, R"("event":"node_away","node":0,"host":"n1","message":"reset")"),
                  at(900, R"("event":"node_back","node":0,"host":"n1","away_seconds":0.4)"),
                  at(950, R"("event":"node_away","node":1,"host":"n2","message":"reset")"),
                  at(1900, R"("event":"node_lost","node":1,"host":"n2","message":"silent","ranks":[2])")});
  CHECK(*history.nodes()[0].away[0].to == doctest::Approx(0.9));
  CHECK(*history.nodes()[1].away[0].to == doctest::Approx(1.9));
  CHECK(history.nodes()[1].is_lost);
  CHECK(history.ranks()[2].processes[0].end == HistoryProcess::End::kLost);
  CHECK(history.ranks()[0].processes[0].end == HistoryProcess::End::kRunning);
  CHECK(history.events().size() == 4);
}

TEST_CASE("a job that begins anew keeps its history, and the next step of a job file has its own") {
  const std::string again = at(2600, R"("event":"job_restarted","message":"rank 1 failed","restart":1,"limit":3)");
  std::vector<std::string> lines = failed_job();
  lines.back() = again;
  lines.push_back(started(3000));
  lines.push_back(rank_started(3100, 1, 0));
  JobHistory history = history_of(lines);
  CHECK(history.ranks()[1].processes.size() == 2);
  CHECK_FALSE(history.failure().has_value());
  CHECK(history.latest() == doctest::Approx(3.1));
  JobHistory smaller = history_of(lines);
  smaller.add(again);
  smaller.add(at(3500, R"("event":"job_started","size":1,"nodes":[{"node":0,"host":"n2","ranks":[0]}])"));
  CHECK((smaller.ranks().size() == 1 && smaller.ranks()[0].processes.size() == 1));
  history.add(started(4000));
  CHECK(history.ranks()[1].processes.empty());
  CHECK(history.latest() == 0);
}

TEST_CASE("what is no event, or a false one, changes nothing and harms nothing") {
  JobHistory history = history_of({started()});
  for (const char* line :
       {"", "step 5", "{", "{}", "[1]", R"({"event":"rank_started"})", R"({"event":5,"time":"x"})",
        R"({"event":"rank_started","time":"2026-11-22T12:00:01.000Z","rank":-4,"node":0})",
        R"({"event":"rank_started","time":"2026-11-22T12:00:01.000Z","rank":9999999999,"node":0})",
        R"({"event":"node_ready","time":"2026-11-22T12:00:01.000Z","node":"a"})",
        R"({"event":"node_lost","time":"2026-11-22T12:00:01.000Z"})", R"({"event":"job_ended","time":"yesterday"})",
        R"({"event":"new_one","time":"2026-11-22T12:00:01.000Z"})"}) {
    history.add(line);
  }
  CHECK(history.nodes().size() == 2);
  CHECK(history.ranks().size() == 3);
  CHECK_FALSE(history.end().has_value());
  CHECK_FALSE(job_page(history).empty());
  CHECK_FALSE(job_page(JobHistory()).empty());
}

TEST_CASE("a job that is refused lasts for no time, and has a page that says why") {
  const JobHistory history = history_of({at(1000, R"("event":"failure","causes":["no folder /x"],"exit_code":244)"),
                                         at(1000, R"("event":"job_ended","exit_code":244,"seconds":0.0)")});
  CHECK(history.began() == "2026-11-22T12:00:01.000Z");
  REQUIRE(history.failure());
  CHECK((history.failure()->at == 0 && history.latest() == 0));
  const std::string page = job_page(history);
  CHECK(page.find("The first failure, " + duration_text(0) + " after the start") != std::string::npos);
  CHECK(page.find("Ranks: 0 succeeded") == std::string::npos);
}

TEST_CASE("an end that does not count the ranks has no counts on the page") {
  const JobHistory history =
      history_of({started(), rank_started(100, 0, 0), rank_ended(200, 0, 0, 3),
                  at(300, R"("event":"job_restarted","message":"rank 0 failed","restart":1,"limit":3)"),
                  at(400, R"("event":"failure","causes":["too few hosts are left"],"exit_code":3)"),
                  at(400, R"("event":"job_ended","exit_code":3,"seconds":0.0)")});
  CHECK(job_page(history).find("Ranks: 0 succeeded") == std::string::npos);
}

TEST_CASE("ranks that have left an elastic job are counted at its end") {
  JobHistory history = history_of({started()});
  history.add(at(2500, R"("event":"job_ended","exit_code":0,"seconds":2.5,"output_kept":true,"ranks":)"
                       R"({"succeeded":2,"failed":0,"lost":0,"not_started":0,"released":1})"));
  CHECK(job_page(history).find("Ranks: 2 succeeded, 1 released") != std::string::npos);
}

TEST_CASE("the clock may be set back") {
  const JobHistory history = history_of({started(30000), rank_started(40000, 0, 0), rank_ended(20000, 0, 0, 0)});
  CHECK(*history.ranks()[0].processes[0].time.to >= history.ranks()[0].processes[0].time.from);
}

TEST_CASE("a page names the failure first, and shows texts as texts") {
  const std::string page = job_page(history_of(failed_job()));
  CHECK(page.find("Failed with code 3") < page.find("<section class=\"failure\">"));
  CHECK(page.find("rank 1 on n1 exited with code 3") < page.find("<h2>Ranks</h2>"));
  CHECK(page.find("ValueError: &lt;bad&gt;") != std::string::npos);
  CHECK(page.find("a&lt;b&gt;.py") != std::string::npos);
  CHECK(page.find("<b>") == std::string::npos);
  CHECK(page.find("<script") == std::string::npos);
  CHECK(page.find("http") == std::string::npos);
  CHECK(count(page, "class=\"b-first\"") == 1);
  CHECK(count(page, "class=\"b-after\"") == 2);
  CHECK(page.find("3 ranks on 2 hosts, 2.50 s") != std::string::npos);
}

TEST_CASE("the page of a running job lasts until the last look at it, that of an ended one until its end") {
  JobCurves curves;
  JobPicture picture;
  picture.nodes.resize(1);
  curves.take(400, picture);
  const auto lasts = [](const std::string& page, double seconds, const std::string& after) {
    return page.find(duration_text(seconds) + after) != std::string::npos;
  };
  JobHistory history = history_of({started(), rank_started(100, 0, 0)});
  CHECK(lasts(job_page(history), history.latest(), " so far, began"));
  CHECK(lasts(job_page(history, curves), 400, " so far, began"));
  history.add(kEnded);
  CHECK(lasts(job_page(history, curves), history.latest(), ", began"));
}

TEST_CASE("a host that has not answered is waited for until it is lost or the job has ended") {
  const std::string unreached = R"("event":"node_lost","node":0,"host":"n1","message":"it is silent")";
  JobHistory history = history_of({started()});
  CHECK((count(job_page(history), ">not yet<") == 2 && count(job_page(history), ">never<") == 0));
  history.add(at(1000, unreached));
  CHECK((count(job_page(history), ">not yet<") == 1 && count(job_page(history), ">never<") == 1));
  history.add(kEnded);
  CHECK((count(job_page(history), ">not yet<") == 0 && count(job_page(history), ">never<") == 2));
}

TEST_CASE("a job of 1,000 ranks that start anew for a day has a page of at most 5 MB") {
  std::vector<std::string> lines{started()};
  for (int round = 0; round < 20; ++round) {
    for (int rank = 0; rank < 1000; ++rank) {
      lines.push_back(rank_started(round * 100, rank, rank / 8));
      lines.push_back(rank_ended(round * 100 + 90, rank, rank / 8, 1));
      lines.push_back(
          at(round * 100 + 95, R"("event":"rank_restarted","message":"it failed","restart":1,"limit":9,"rank":)" +
                                   std::to_string(rank) + R"(,"node":)" + std::to_string(rank / 8)));
    }
  }
  const JobHistory history = history_of(lines);
  CHECK(history.count_of_events() == 20000);
  const std::string page = job_page(history);
  CHECK(page.size() < 5'000'000);
  CHECK(page.find("and 19500 more") != std::string::npos);
}

TEST_CASE("a page is written when something is new, at most every five seconds else, and never by halves") {
  const std::string folder = std::filesystem::temp_directory_path() / ("page_test." + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/job.html";
  const auto text = [&path] {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  hvd::test::StillClock clock;
  PageFile page(path, clock);
  page.add(started());
  const std::string first = text();
  CHECK(first.find("Running") != std::string::npos);
  page.add(rank_started(100, 0, 0));
  CHECK(text() == first);
  clock.advance(std::chrono::seconds(5));
  page.add(rank_started(100, 1, 0));
  CHECK(text() != first);
  page.add(kFailure);
  CHECK(text().find("The first failure") != std::string::npos);
  page.add(kEnded);
  CHECK(text().find("Failed with code 3") != std::string::npos);
  page.add(started(9500));  // the next step of a job file
  CHECK(text().find("badge running") != std::string::npos);
  CHECK(page.failure().empty());
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a page counts what ranks print before and after they are started anew") {
  const std::string path = std::filesystem::temp_directory_path() / ("page_test." + std::to_string(::getpid()));
  hvd::test::StillClock clock;
  JobPicture picture;
  picture.nodes.resize(1);
  picture.nodes[0].is_sampled = true;
  picture.ranks.resize(1);
  picture.ranks[0].lines = 70;
  PageFile page(path, clock);
  page.add(started());
  for (int start = 0; start < 2; ++start) {
    clock.advance(std::chrono::seconds(5));
    page.take(picture);
    page.add(at(9000, R"("event":"job_restarted","message":"rank 1 failed","restart":1,"limit":3)"));
    page.add(started(9500));
  }
  page.add(kEnded);
  std::ifstream file(path);
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}).find("140 lines") != std::string::npos);
  std::filesystem::remove(path);
}

TEST_CASE("a page that cannot be written is told once") {
  const hvd::test::StillClock clock;
  PageFile page("/nowhere/job.html", clock);
  page.add(started());
  page.add(kEnded);
  CHECK(page.failure() ==
        "--report: cannot write /nowhere/job.html: No such file or directory; the job goes on without its page");
  CHECK(page.failure().empty());
}

}  // namespace hvd::launch::page_test
