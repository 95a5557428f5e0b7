// SPDX-License-Identifier: MIT
// As much of a JSON reader as the case list needs: objects, arrays, strings without \u escapes, numbers, true, false
// and null.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace driver {

struct Json {
  enum class Kind { null, boolean, number, string, array, object } kind = Kind::null;
  double number = 0;  // of a boolean: 0 or 1
  std::string text;
  std::vector<Json> items;
  std::vector<std::pair<std::string, Json>> members;

  const Json &at(const std::string &key) const {
    if (const Json *found = find(key)) return *found;
    throw std::runtime_error("JSON: no member \"" + key + "\"");
  }
  const Json *find(const std::string &key) const {
    for (const auto &member : members) {
      if (member.first == key) return &member.second;
    }
    return nullptr;
  }
};

class JsonReader {
 public:
  explicit JsonReader(const std::string &text) : text_(text) {}

  Json read() {
    Json value = read_value();
    skip_space();
    if (at_ != text_.size()) fail("something after the value");
    return value;
  }

 private:
  [[noreturn]] void fail(const char *what) const {
    throw std::runtime_error("JSON: " + std::string(what) + " at character " + std::to_string(at_));
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  char peek() {
    skip_space();
    if (at_ == text_.size()) fail("unexpected end");
    return text_[at_];
  }

  void expect(char wanted) {
    if (peek() != wanted) fail("unexpected character");
    ++at_;
  }

  bool accept(const std::string &word) {
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }

  std::string read_string() {
    expect('"');
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\') ++at_;
      if (at_ == text_.size()) fail("unexpected end");
      if (text_[at_] == 'u' && text_[at_ - 1] == '\\') fail("\\u is not read here");
      out += text_[at_++];
    }
    expect('"');
    return out;
  }

  Json read_value() {
    Json value;
    char first = peek();
    if (first == '{') {
      value.kind = Json::Kind::object;
      ++at_;
      while (peek() != '}') {
        std::string key = read_string();
        expect(':');
        value.members.emplace_back(key, read_value());
        if (peek() != '}') expect(',');
      }
      ++at_;
    } else if (first == '[') {
      value.kind = Json::Kind::array;
      ++at_;
      while (peek() != ']') {
        value.items.push_back(read_value());
        if (peek() != ']') expect(',');
      }
      ++at_;
    } else if (first == '"') {
      value.kind = Json::Kind::string;
      value.text = read_string();
    } else if (accept("true")) {
      value.kind = Json::Kind::boolean;
      value.number = 1;
    } else if (accept("false")) {
      value.kind = Json::Kind::boolean;
    } else if (!accept("null")) {
      const char *begin = text_.c_str() + at_;
      char *end = nullptr;
      value.kind = Json::Kind::number;
      value.number = std::strtod(begin, &end);
      if (end == begin) fail("no value");
      at_ += static_cast<size_t>(end - begin);
    }
    return value;
  }

  const std::string &text_;
  size_t at_ = 0;
};

}  // namespace driver
