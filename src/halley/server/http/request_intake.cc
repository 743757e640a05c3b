#include "halley/server/http/request_intake.h"

#include <utility>

namespace halley {

RequestIntake::RequestIntake(const HttpLimits& limits, const GateSlot& gates,
                             std::shared_ptr<ByteBudget> budget)
    : limits_(limits), gates_(gates), budget_(std::move(budget)) {}

HttpResponse RequestIntake::take_answer() { return std::move(answer_); }

void RequestIntake::reset() {
  parser_.reset();
  route_ = nullptr;
  is_judged_ = false;
  must_close_ = false;
}

RequestIntake::Step RequestIntake::step(std::string_view bytes, size_t& num_used) {
  num_used = 0;
  if (parser_ == nullptr) {
    if (bytes.empty()) return Step::kNeedMore;
    parser_ = std::make_unique<RequestParser>(limits_, budget_);
  }
  num_used = parser_->parse(bytes);
  if (parser_->state() == RequestParser::State::kRejected) return reject();
  if (parser_->state() == RequestParser::State::kHead) return Step::kNeedMore;
  if (!is_judged_) {
    const Step judged = judge();
    if (judged != Step::kNeedMore) return judged;
    if (num_used == bytes.size()) {
      return parser_->framing().expects_continue ? Step::kContinue : Step::kNeedMore;
    }
    num_used += parser_->parse(bytes.substr(num_used));
    if (parser_->state() == RequestParser::State::kRejected) return reject();
  }
  return parser_->state() == RequestParser::State::kDone ? Step::kRequest : Step::kNeedMore;
}

// Runs before the body is read. kNeedMore: read the body.
RequestIntake::Step RequestIntake::judge() {
  is_judged_ = true;
  RequestGate::Verdict verdict = gates_.get().judge(parser_->request());
  if (verdict.answer.has_value()) {
    answer_ = std::move(*verdict.answer);
    must_close_ = parser_->framing().has_body;
    return Step::kAnswer;
  }
  route_ = verdict.route;
  if (!parser_->accept_body_length()) return reject();
  return parser_->state() == RequestParser::State::kDone ? Step::kRequest : Step::kNeedMore;
}

RequestIntake::Step RequestIntake::reject() {
  answer_ = parser_->take_rejection();
  if (route_ != nullptr) answer_ = in_format_of(*route_, std::move(answer_));
  must_close_ = true;
  return Step::kAnswer;
}

}  // namespace halley
