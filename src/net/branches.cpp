#include "src/net/branches.h"

#include <algorithm>

#include "layers/base/prepared_op.h"
#include "layers/branch_sums.h"
#include "src/core/columns.h"
#include "src/core/dispatch.h"
#include "src/net/composite.h"
#include "src/net/layer_types.h"
#include "src/system/check.h"

namespace owt {
namespace {

// A view of a batch of images with one row per pixel, so that channels are columns.
Tensor pixels_of(const Tensor& batch) {
  const Shape& shape = batch.shape();
  const int64_t columns = shape[shape.rank() - 1];
  return batch.reshaped({shape.elements() / columns, columns});
}

class BranchesOp : public PreparedOp {
 public:
  BranchesOp(std::span<Net> branches, const Shape& in, const Compute& on, const Layer::BindOptions& options)
      : in_(in), on_(on), type_(activation_type(on.precision)) {
    const auto* lender = dynamic_cast<const BranchesOp*>(options.lender);
    int64_t first = 0;
    for (size_t b = 0; b < branches.size(); ++b) {
      const Shape out = branches[b].out().batch_of(in.rows());
      tapes_.push_back(std::make_unique<Tape>(branches[b], in.rows(), on, nullptr, Tape::Scratch::kOfPass,
                                              options.wants_dx, lender ? lender->tapes_[b].get() : nullptr));
      tapes_.back()->forget_in_evaluation();
      outs_.push_back({out, first, out[out.rank() - 1]});
      first += outs_.back().width;
    }
  }

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    Tensor whole = pixels_of(y);
    for (size_t b = tapes_.size(); b-- > 0;) {
      const auto& [shape, first, width] = outs_[b];
      copy_columns(pixels_of(tapes_[b]->forward(pass, x)), 0, whole, first, width, *pass.stream);
    }
  }

  // Each branch gets a copy of its columns of dy, which it may overwrite. The first branch writes its gradient of x to
  // dx, and the gradients of the other branches are added.
  void backward_data(const Pass& pass, const Tensor& x, const Tensor&, const Tensor& dy, Tensor* dx) override {
    const int64_t after_branches = branch_bytes(Phase::kBackward);
    for (size_t b = 0; b < tapes_.size(); ++b) {
      const auto& [shape, first, width] = outs_[b];
      Tensor gradient = pass.scratch_at(after_branches, shape, type_);
      Tensor columns = pixels_of(gradient);
      copy_columns(pixels_of(dy), first, columns, 0, width, *pass.stream);
      Tensor of_branch = pass.scratch_at(after_branches + largest_out(), in_, type_);
      tapes_[b]->backward(pass, x, gradient, !dx ? nullptr : b == 0 ? dx : &of_branch);
      if (dx && b > 0) dispatch(on_, [&](auto tag) { add_branches(tag, *dx, of_branch, false, *dx, *pass.stream); });
    }
  }

  void prepare_backward(bool wants_dx) override {
    for (const auto& tape : tapes_) tape->prepare_backward(wants_dx);
  }

  // Scratch memory of one branch at a time; in backward, then the gradients of its output and of its input.
  int64_t scratch_bytes(Phase phase) const override {
    const int64_t gradients = largest_out() + aligned_bytes(in_.elements() * size_of(type_));
    return branch_bytes(phase) + (phase == Phase::kBackward ? gradients : 0);
  }

  int64_t inner_bytes() const override {
    int64_t bytes = 0;
    for (const auto& tape : tapes_) bytes += tape->bytes();
    return bytes;
  }

 private:
  struct Out {
    Shape shape;           // output of one branch
    int64_t first, width;  // its columns in y
  };

  int64_t branch_bytes(Phase phase) const {
    int64_t most = 0;
    for (const auto& tape : tapes_) most = std::max(most, tape->scratch_bytes(phase));
    return most;
  }
  int64_t largest_out() const {
    int64_t most = 0;
    for (const Out& out : outs_) most = std::max(most, aligned_bytes(out.shape.elements() * size_of(type_)));
    return most;
  }

  Shape in_;
  Compute on_;
  DType type_;
  std::vector<std::unique_ptr<Tape>> tapes_;
  std::vector<Out> outs_;
};

class Branches : public Composite {
 public:
  explicit Branches(const LayerSpec& spec) : Composite(spec, "branches", net_layer_types()) {
    for (Config& table : spec.config.tables("branches")) {
      table.call(concat(spec.config.what(), ", branches"));
      const std::string name = table.string("name", "");
      add_branch(spec, table, "layers", spec.name + "." + (name.empty() ? "" : name + "."));
      table.finish("a branch");
    }
    if (branches().size() < 2)
      spec.config.error("branches",
                        "wanted two branches at least: branches = [{ layers = [...] }, { layers = [...] }]");
    const Shape first = branches()[0].out();
    for (const Net& branch : branches()) {
      const Shape out = branch.out();
      if (out.rank() == first.rank() && (out.rank() == 1 || (out[0] == first[0] && out[1] == first[1]))) continue;
      spec.config.error("branches", concat("the output of one branch is ", first, ", of another ", out,
                                           ", and they are to lie side by side: images want one height and width"));
    }
    check_names(spec, "branches");
  }

  Shape out_shape(const Shape& in) const override {
    check_input(in);
    Shape out = branches()[0].out();
    int64_t columns = 0;
    for (const Net& branch : branches()) columns += branch.out()[out.rank() - 1];
    return (out.rank() == 1 ? Shape{columns} : Shape{out[0], out[1], columns}).batch_of(in.rows());
  }

  BoundOp bind_at(const BindOptions& options, std::span<const std::unique_ptr<Layer>>, const Shape& in,
                  const Compute& on) override {
    out_shape(in);
    return {std::make_unique<BranchesOp>(branches_, in, on, options), 1};
  }

  Described describe(const Shape&) override { return {type(), {}, {}}; }
};

}  // namespace

std::unique_ptr<Layer> make_branches(const LayerSpec& spec) { return std::make_unique<Branches>(spec); }

}  // namespace owt
