#include "halley/checkpoint/tokenizer/post_processor.h"

#include <algorithm>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/component.h"

namespace halley {

namespace {

constexpr int kDepthMax = 16;
constexpr size_t kNumPartsMax = 4096;
// Each copy costs as much memory as the text.
constexpr int kNumTextCopiesMax = 4;

}  // namespace

// Runs the processors once, on a text whose ids are not known yet. A template cuts what it gets
// into several sequences, and a processor behind it takes two sequences for a pair: that is how
// Hugging Face runs a "Sequence", so it is done the same way here.
class PostProcessorBuilder {
 public:
  PostProcessorBuilder(int32_t num_ids, bool add_special_tokens)
      : num_ids_(num_ids), add_special_tokens_(add_special_tokens) {
    sequences_ = {{{true, {}}}};
  }

  void run(const Json& value, const std::string& where, int depth) {
    const Component config(value, where);
    const std::string type = config.type();
    if (type == "Sequence") return run_sequence(config, depth);
    if (type == "ByteLevel") return;  // offsets only
    if (type == "TemplateProcessing") return run_template(config);
    if (type == "BertProcessing") return run_bert(config, /*has_two_seps=*/false);
    if (type == "RobertaProcessing") return run_bert(config, /*has_two_seps=*/true);
    throw UnsupportedError(str(where, ": the post-processor ", quote(type), " is not supported."));
  }

  std::vector<PostProcessor::Part> parts(const std::string& where) const {
    Parts result;
    for (const Parts& sequence : sequences_) {
      result.insert(result.end(), sequence.begin(), sequence.end());
    }
    const auto num_copies = std::count_if(
        result.begin(), result.end(), [](const PostProcessor::Part& part) { return part.is_text; });
    if (num_copies > kNumTextCopiesMax) {
      throw InputError(str(where, ": expected at most ", kNumTextCopiesMax,
                           " copies of the text, got ", num_copies, "."));
    }
    return result;
  }

 private:
  using Parts = std::vector<PostProcessor::Part>;

  void run_sequence(const Component& config, int depth) {
    if (depth >= kDepthMax) {
      throw InputError(
          str(config.where(), ": expected at most ", kDepthMax, " nested sequences, got more."));
    }
    size_t index = 0;
    for (const Json& element : config.array("processors")) {
      run(element, str(config.where(), ".processors[", index++, "]"), depth + 1);
    }
  }

  int32_t checked_id(const Json& value, const std::string& where) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= static_cast<uint64_t>(num_ids_)) {
      throw InputError(str(where, ": expected an id of the vocabulary (0 to ", num_ids_ - 1,
                           "), got ", quote(value.dump(), 40), "."));
    }
    return value.get<int32_t>();
  }

  // The template for one sequence, or that for a pair where a processor before made two.
  const char* template_name(const Component& config) const {
    if (sequences_.size() > 2) {
      throw UnsupportedError(str(config.where(),
                                 ": a third template in one Sequence of "
                                 "post-processors is not supported. Join them into one."));
    }
    return sequences_.size() == 2 ? "pair" : "single";
  }

  void run_template(const Component& config) {
    const char* name = template_name(config);
    std::vector<Parts> result;
    size_t num_parts = 0;
    for (const Json& element : config.array(name)) {
      const std::string where = str(config.where(name), "[", result.size(), "]");
      const Component piece(element, where);
      if (const Json* sequence = piece.find("Sequence")) {
        result.push_back(sequences_[sequence_index(Component(*sequence, where))]);
      } else if (const Json* token = piece.find("SpecialToken")) {
        Parts special = special_token(config, Component(*token, where).text("id"), where);
        if (add_special_tokens_) result.push_back(std::move(special));
      } else {
        throw InputError(str(where, ": expected \"Sequence\" or \"SpecialToken\"."));
      }
      if (!result.empty()) num_parts += result.back().size();
      if (num_parts > kNumPartsMax) {
        throw InputError(str(config.where(name), ": expected at most ", kNumPartsMax, " parts."));
      }
    }
    sequences_ = std::move(result);
  }

  size_t sequence_index(const Component& sequence) const {
    const std::string id = sequence.text("id");
    const size_t index = id == "A" ? 0 : 1;
    if ((id != "A" && id != "B") || index >= sequences_.size()) {
      sequence.fail("id", sequences_.size() == 2 ? "\"A\" or \"B\"" : "\"A\"");
    }
    return index;
  }

  Parts special_token(const Component& config, const std::string& id, const std::string& where) {
    const Component tokens(config.member("special_tokens"), config.where("special_tokens"));
    const auto found = tokens.json().find(id);
    if (found == tokens.json().end()) {
      throw InputError(str(where, ": expected a token of special_tokens, got ", quote(id), "."));
    }
    const Component token(*found, str(tokens.where(), "[", quote(id), "]"));
    PostProcessor::Part part{false, {}};
    for (const Json& value : token.array("ids")) {
      part.ids.push_back(checked_id(value, token.where("ids")));
    }
    return {std::move(part)};
  }

  // [CLS] A [SEP], and for a second sequence B [SEP]; RoBERTa has a [SEP] before B too.
  void run_bert(const Component& config, bool has_two_seps) {
    const PostProcessor::Part cls = token_part(config, "cls");
    const PostProcessor::Part sep = token_part(config, "sep");
    if (!add_special_tokens_) return;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      Parts& sequence = sequences_[i];
      if (i == 0) {
        sequence.insert(sequence.begin(), cls);
      } else if (has_two_seps) {
        sequence.insert(sequence.begin(), sep);
      }
      sequence.push_back(sep);
    }
  }

  // ["[SEP]", 102]
  PostProcessor::Part token_part(const Component& config, const char* member) const {
    const Json& value = config.array(member);
    if (value.size() != 2 || !value[0].is_string()) config.fail(member, "[token, id]");
    return {false, {checked_id(value[1], config.where(member))}};
  }

  int32_t num_ids_;
  bool add_special_tokens_;
  std::vector<Parts> sequences_;
};

PostProcessor PostProcessor::parse(const Json& value, int32_t num_ids, const std::string& where) {
  PostProcessor result;
  for (const bool add_special_tokens : {true, false}) {
    PostProcessorBuilder builder(num_ids, add_special_tokens);
    builder.run(value, where, 0);
    (add_special_tokens ? result.with_special_ : result.without_special_) = builder.parts(where);
  }
  return result;
}

std::vector<int32_t> PostProcessor::apply(const std::vector<int32_t>& ids,
                                          bool add_special_tokens) const {
  std::vector<int32_t> result;
  for (const Part& part : add_special_tokens ? with_special_ : without_special_) {
    const std::vector<int32_t>& added = part.is_text ? ids : part.ids;
    result.insert(result.end(), added.begin(), added.end());
  }
  return result;
}

}  // namespace halley
