#include "src/report/pages/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "src/system/check.h"
#include "tests/support/message_of.h"

namespace owt::http_server_test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::shared_ptr<const std::string> text(const std::string& content) {
  return std::make_shared<const std::string>(content);
}

// A connection to a server that runs in this thread: it serves whenever this side waits.
class Client {
 public:
  explicit Client(HttpServer& server) : server_(server), socket_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    static_cast<void>(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address));
    server_.serve_for({});
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // False: the other side has closed.
  bool send(const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t count = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count < 0 && errno != EAGAIN) return false;
      sent += static_cast<size_t>(std::max<ssize_t>(0, count));
      server_.serve_for({});
    }
    return true;
  }
  // Until the text is there, or the other side has ended.
  std::string received_with(const std::string& end) {
    while (received_.find(end) == std::string::npos && !ended_) {
      server_.serve_for(std::chrono::milliseconds(1));
      char buffer[4096];
      const ssize_t count = recv(socket_, buffer, sizeof buffer, 0);
      if (count > 0) received_.append(buffer, static_cast<size_t>(count));
      ended_ = count == 0 || (count < 0 && errno != EAGAIN);
    }
    return received_;
  }
  std::string received() { return received_with(std::string("\0no text has this", 17)); }

 private:
  HttpServer& server_;
  int socket_;
  std::string received_;
  bool ended_ = false;
};

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() {
    server.answer_with([this](const HttpRequest& request) {
      asked = request;
      HttpAnswer answer;
      answer.body = text("page of " + request.path);
      answer.goes_on = request.path.ends_with("/events");
      return answer;
    });
  }
  std::string answer_to(const std::string& request) {
    Client client(server);
    client.send(request);
    return client.received();
  }

  HttpServer server{"127.0.0.1", 0};
  HttpRequest asked;
};

TEST_F(HttpServerTest, GivesPathAndHostAndSendsTheAnswer) {
  EXPECT_THAT(answer_to("GET /a?b=c HTTP/1.1\r\nhOsT:  LocalHost:80 \r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("\r\nContent-Length: 10\r\n"),
                    EndsWith("\r\n\r\npage of /a")));
  EXPECT_EQ(asked.path, "/a");
  EXPECT_EQ(asked.host, "localhost:80");
}

TEST_F(HttpServerTest, TellsBrowsersWhatTheAnswerMayNotDo) {
  EXPECT_THAT(answer_to("GET / HTTP/1.0\r\n\r\n"),
              AllOf(HasSubstr("\r\nContent-Security-Policy: default-src 'none';frame-ancestors 'none'\r\n"),
                    HasSubstr("\r\nX-Frame-Options: DENY\r\n"), HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"),
                    HasSubstr("\r\nCross-Origin-Resource-Policy: same-origin\r\n")));
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  EXPECT_THAT(answer_to("HEAD / HTTP/1.1\r\n\r\n"), AllOf(HasSubstr("Content-Length: 9\r\n"), EndsWith("\r\n\r\n")));
  EXPECT_THAT(answer_to("HEAD /events HTTP/1.1\r\n\r\n"), EndsWith("\r\n\r\n"));
}

TEST_F(HttpServerTest, RangesAreNotMade) {
  EXPECT_THAT(answer_to("GET / HTTP/1.1\r\nRange: bytes=0-0,1-1\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("\r\n\r\npage of /")));
}

TEST_F(HttpServerTest, RefusesWhatIsNoSimpleQuestion) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "get", "X"})
    EXPECT_THAT(answer_to(concat(method, " / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")),
                AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD\r\n")));
  for (const char* body : {"Content-Length: 1", "content-length: -1", "Transfer-Encoding: chunked"})
    EXPECT_THAT(answer_to(concat("GET / HTTP/1.1\r\n", body, "\r\n\r\n")), StartsWith("HTTP/1.1 413 "));
  for (const char* head : {"GET /", "GET  / HTTP/1.1", " / HTTP/1.1", "\r\nGET / HTTP/1.1", "GET / HTTP/1.1\r\nHost",
                           "GET / HTTP/1.1\r\nHost : a", "GET / HTTP/1.1\r\nHost: a\r\nHost: b"})
    EXPECT_THAT(answer_to(concat(head, "\r\n\r\n")), StartsWith("HTTP/1.1 400 ")) << head;
  EXPECT_THAT(answer_to("GET / HTTP/2.0\r\n\r\n"), StartsWith("HTTP/1.1 505 "));
  EXPECT_THAT(asked.path, "") << "somebody was asked";
}

TEST_F(HttpServerTest, AHeadWithoutEndIsRefusedAndNotKept) {
  EXPECT_THAT(answer_to("GET /" + std::string(HttpServer::kLongestHead, 'x')), StartsWith("HTTP/1.1 431 "));
  std::string lines = "GET / HTTP/1.1\r\n";
  while (lines.size() <= HttpServer::kLongestHead) lines += "a: b\r\n";
  EXPECT_THAT(answer_to(lines), StartsWith("HTTP/1.1 431 "));
}

// The answer is sent while the body is still arriving; the body is discarded.
TEST_F(HttpServerTest, ABodyIsNotWaitedFor) {
  Client client(server);
  client.send("POST / HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n");
  EXPECT_THAT(client.received_with("HEAD\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_TRUE(client.send(std::string(1 << 16, 'x')));
}

TEST_F(HttpServerTest, EventsGoToAllOpenStreams) {
  Client one(server), two(server), other(server);
  for (Client* client : {&one, &two}) {
    client->send("GET /events HTTP/1.1\r\n\r\n");
    EXPECT_THAT(client->received_with("page of /events"), Not(HasSubstr("Content-Length")));
  }
  other.send("GET / HTTP/1.1\r\n\r\n");
  server.send_event("data: 7\n\n");
  EXPECT_THAT(one.received_with("data: 7\n\n"), EndsWith("data: 7\n\n"));
  EXPECT_THAT(two.received_with("data: 7\n\n"), EndsWith("data: 7\n\n"));
  EXPECT_THAT(other.received(), EndsWith("page of /"));
}

TEST_F(HttpServerTest, AnEventOfAPageGoesToItsStreamsOnly) {
  Client list(server), run(server);
  list.send("GET /events HTTP/1.1\r\n\r\n");
  list.received_with("page of /events");
  run.send("GET /run/a/events HTTP/1.1\r\n\r\n");
  run.received_with("page of /run/a/events");
  server.send_event("data: 7\n\n", "/run/a/events");
  server.send_event("data: 8\n\n", "/events");
  server.send_event("data: 9\n\n");
  EXPECT_THAT(list.received_with("data: 9\n\n"), AllOf(HasSubstr("data: 8\n\ndata: 9"), Not(HasSubstr("data: 7"))));
  EXPECT_THAT(run.received_with("data: 9\n\n"), HasSubstr("data: 7\n\ndata: 9"));
}

TEST_F(HttpServerTest, AnswersOthersBesideMoreConnectionsThanItKeeps) {
  std::list<Client> silent;
  for (size_t i = 0; i < HttpServer::kMostConnections + 20; ++i) silent.emplace_back(server).send("GET ");
  EXPECT_THAT(answer_to("GET / HTTP/1.1\r\n\r\n"), EndsWith("page of /"));
}

TEST_F(HttpServerTest, MoreEventStreamsThanItKeepsAreRefused) {
  std::list<Client> open;
  for (size_t i = 0; i < HttpServer::kMostEventStreams; ++i) {
    open.emplace_back(server).send("GET /events HTTP/1.1\r\n\r\n");
    open.back().received_with("page of");
  }
  EXPECT_THAT(answer_to("GET /events HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 503 "));
}

// Every answer has another text, like in a growing run; old texts are dropped before there are too many.
TEST_F(HttpServerTest, OldTextsOfSlowReadersAreGivenUp) {
  std::vector<std::weak_ptr<const std::string>> given;
  server.answer_with([&](const HttpRequest&) {
    HttpAnswer answer;
    answer.body = text(std::string(HttpServer::kMostOldBytes / 4, 'x'));
    given.push_back(answer.body);
    return answer;
  });
  std::list<Client> slow;
  for (int i = 0; i < 20; ++i) slow.emplace_back(server).send("GET / HTTP/1.1\r\n\r\n");
  while (given.size() < 20) server.serve_for(std::chrono::milliseconds(1));
  EXPECT_LE(std::count_if(given.begin(), given.end(), [](const auto& body) { return !body.expired(); }), 5);
  EXPECT_FALSE(given.back().expired());
}

TEST(HttpServerAddresses, SaysWhoCanCome) {
  EXPECT_TRUE(HttpServer("127.0.0.1", 0).is_loopback());
  EXPECT_TRUE(HttpServer("127.0.0.2", 0).is_loopback());
  const HttpServer any("0.0.0.0", 0);
  EXPECT_TRUE(any.is_any_address());
  EXPECT_FALSE(any.is_loopback());
}

TEST(HttpServerAddresses, ThoseThatCannotBeListenedAtAreNamed) {
  const HttpServer first("127.0.0.1", 0);
  EXPECT_THAT(message_of([&] { HttpServer("127.0.0.1", first.port()); }),
              AllOf(HasSubstr(concat("127.0.0.1:", first.port())), HasSubstr("another --port")));
  EXPECT_THAT(message_of([] { HttpServer("192.0.2.1", 0); }), HasSubstr("no address of this machine"));
}

}  // namespace
}  // namespace owt::http_server_test
