// The rules of optimizer.h for one element, for CPUs and kernels. Each rule turns a weight, its gradient and its states
// into the new weight and states. Values that are equal for all elements of a parameter are computed once.
#pragma once

#include <cmath>

#include "src/core/on_devices.h"
#include "src/parallel/optimizer.h"

namespace owt {

// The common values of the elements of one parameter.
struct RuleTerms {
  double rate, lr, scale, decay;  // rate of the step; rate times lr_mult; gradient_scale; decay times decay_mult
  double l1;                      // times decay_mult; 0 for biases
  double update;                  // number of the update, from 1
  double sgd_share;

  OWT_ON_DEVICES RuleTerms(const UpdateRule& rule, const UpdateItem& item, const StepRates& now)
      : rate(item.bias ? now.biases : now.weights),
        lr(rate * item.lr_mult * (rule.factors ? rule.factors[item.factor] : 1)),
        scale(rule.gradient_scale * (rule.factors ? rule.factors[0] : 1)),
        decay(rule.settings.decay * item.decay_mult),
        l1(item.bias ? 0 : rule.settings.l1 * item.decay_mult),
        update(now.updates + rule.earlier + 1),
        sgd_share(now.sgd_share) {}
};

// The velocity includes the rate and the sign.
template <bool nesterov>
struct SgdRule {
  static constexpr int kStates = 1;
  float momentum, gradient, decay;

  OWT_ON_DEVICES SgdRule(const UpdateRule& rule, const RuleTerms& of)
      : momentum(static_cast<float>(rule.settings.momentum)),
        gradient(static_cast<float>(of.lr * of.scale)),
        decay(static_cast<float>(of.lr * of.decay)) {}

  OWT_ON_DEVICES float operator()(float weight, float grad, float& velocity, float&) const {
    const float step = gradient * grad + decay * weight;
    velocity = momentum * velocity - step;
    return nesterov ? weight + (momentum * velocity - step) : weight + velocity;
  }
};

// The velocity excludes the rate and the sign.
template <bool nesterov>
struct CorrectedSgdRule {
  static constexpr int kStates = 1;
  float momentum, scale, decay, lr;

  OWT_ON_DEVICES CorrectedSgdRule(const UpdateRule& rule, const RuleTerms& of)
      : momentum(static_cast<float>(rule.settings.momentum)),
        scale(static_cast<float>(of.scale)),
        decay(static_cast<float>(of.decay)),
        lr(static_cast<float>(of.lr)) {}

  OWT_ON_DEVICES float operator()(float weight, float grad, float& velocity, float&) const {
    const float g = scale * grad + decay * weight;
    velocity = momentum * velocity + g;
    return weight - lr * (nesterov ? g + momentum * velocity : velocity);
  }
};

struct AdamWRule {
  static constexpr int kStates = 2;
  float scale, keep, beta1, beta2, new1, new2, step, root, eps;

  // Computes 1 - beta^t without loss of digits.
  OWT_ON_DEVICES static float correction(double log_beta, double update) {
    return -expm1f(static_cast<float>(log_beta * update));
  }
  OWT_ON_DEVICES AdamWRule(const UpdateRule& rule, const RuleTerms& of)
      : scale(static_cast<float>(of.scale)),
        keep(static_cast<float>(1 - of.lr * of.decay)),
        beta1(static_cast<float>(rule.settings.beta1)),
        beta2(static_cast<float>(rule.settings.beta2)),
        new1(static_cast<float>(1 - rule.settings.beta1)),
        new2(static_cast<float>(1 - rule.settings.beta2)),
        step(static_cast<float>(of.lr) / correction(rule.log_beta1, of.update)),
        root(1 / sqrtf(correction(rule.log_beta2, of.update))),
        eps(static_cast<float>(rule.settings.eps)) {}

  OWT_ON_DEVICES float operator()(float weight, float grad, float& mean, float& square) const {
    const float g = scale * grad;
    mean = beta1 * mean + new1 * g;
    square = beta2 * square + new2 * (g * g);
    return keep * weight - step * mean / (root * sqrtf(square) + eps);
  }
};

template <bool momentous>
struct RmspropRule {
  static constexpr int kStates = momentous ? 2 : 1;
  float scale, decay, lr, alpha, fresh, momentum, eps;

  OWT_ON_DEVICES RmspropRule(const UpdateRule& rule, const RuleTerms& of)
      : scale(static_cast<float>(of.scale)),
        decay(static_cast<float>(of.decay)),
        lr(static_cast<float>(of.lr)),
        alpha(static_cast<float>(rule.settings.alpha)),
        fresh(static_cast<float>(1 - rule.settings.alpha)),
        momentum(static_cast<float>(rule.settings.momentum)),
        eps(static_cast<float>(rule.settings.eps)) {}

  OWT_ON_DEVICES float operator()(float weight, float grad, float& square, float& velocity) const {
    const float g = scale * grad + decay * weight;
    square = alpha * square + fresh * (g * g);
    const float step = g / (sqrtf(square) + eps);
    if (!momentous) return weight - lr * step;
    velocity = momentum * velocity + step;
    return weight - lr * velocity;
  }
};

struct AdagradRule {
  static constexpr int kStates = 1;
  float scale, decay, lr, eps;

  OWT_ON_DEVICES AdagradRule(const UpdateRule& rule, const RuleTerms& of)
      : scale(static_cast<float>(of.scale)),
        decay(static_cast<float>(of.decay)),
        lr(static_cast<float>(of.lr)),
        eps(static_cast<float>(rule.settings.eps)) {}

  OWT_ON_DEVICES float operator()(float weight, float grad, float& sum, float&) const {
    const float g = scale * grad + decay * weight;
    sum += g * g;
    return weight - lr * g / (sqrtf(sum) + eps);
  }
};

struct RmspropWarmupRule {
  static constexpr int kStates = 2;
  float scale, decay, lr, alpha, fresh, momentum, eps, of_sgd, of_rmsprop;

  // At a rate of zero no weight moves, but RMSprop's share of the velocity would be infinite.
  OWT_ON_DEVICES RmspropWarmupRule(const UpdateRule& rule, const RuleTerms& of)
      : scale(static_cast<float>(of.scale)),
        decay(static_cast<float>(of.decay)),
        lr(static_cast<float>(of.lr)),
        alpha(static_cast<float>(rule.settings.alpha)),
        fresh(static_cast<float>(1 - rule.settings.alpha)),
        momentum(static_cast<float>(rule.settings.momentum)),
        eps(static_cast<float>(rule.settings.eps)),
        of_sgd(static_cast<float>(of.sgd_share)),
        of_rmsprop(of.rate > 0 ? static_cast<float>((1 - of.sgd_share) * rule.settings.rmsprop_rate / of.rate) : 0) {}

  OWT_ON_DEVICES float operator()(float weight, float grad, float& velocity, float& square) const {
    const float g = scale * grad + decay * weight;
    square = alpha * square + fresh * (g * g);
    velocity = momentum * velocity + (of_sgd + of_rmsprop / (sqrtf(square) + eps)) * g;
    return weight - lr * velocity;
  }
};

// A region of 0 is an initial state. NaN stays NaN.
struct ProximalRule {
  static constexpr int kStates = 1;
  float scale, decay, lr, threshold, first, least, most;

  OWT_ON_DEVICES ProximalRule(const UpdateRule& rule, const RuleTerms& of)
      : scale(static_cast<float>(of.scale)),
        decay(static_cast<float>(of.decay)),
        lr(static_cast<float>(of.lr)),
        threshold(static_cast<float>(of.lr * of.l1)),
        first(static_cast<float>(rule.settings.trust_region)),
        least(0.1f * first),
        most(5 * first) {}

  OWT_ON_DEVICES float operator()(float weight, float grad, float& region, float&) const {
    const float moved = weight - lr * (scale * grad + decay * weight), shrunk = fabsf(moved) - threshold;
    const float step = (shrunk <= 0 ? 0 : copysignf(shrunk, moved)) - weight;
    const float limit = region > 0 ? region : first;
    const float within = step > limit ? limit : step < -limit ? -limit : step;
    const float next = 2 * fabsf(within) + least;
    region = next > most ? most : next;
    return weight + within;
  }
};

template <class T>
struct RuleTag {
  using Rule = T;
};

// Calls visit(tag), where tag's Rule is the rule for the settings.
template <class Visit>
decltype(auto) with_rule(const OptimizerSettings& settings, const Visit& visit) {
  using Type = OptimizerSettings::Type;
  switch (settings.type) {
    case Type::kAdamW:
      return visit(RuleTag<AdamWRule>());
    case Type::kRmsprop:
      return settings.momentum > 0 ? visit(RuleTag<RmspropRule<true>>()) : visit(RuleTag<RmspropRule<false>>());
    case Type::kAdagrad:
      return visit(RuleTag<AdagradRule>());
    case Type::kRmspropWarmup:
      return visit(RuleTag<RmspropWarmupRule>());
    case Type::kProximal:
      return visit(RuleTag<ProximalRule>());
    case Type::kLars:
    case Type::kSgd:
    case Type::kMuon:  // its sgd; see OptimizerSettings::by_element()
      break;
  }
  if (settings.momentum_correction)
    return settings.nesterov ? visit(RuleTag<CorrectedSgdRule<true>>()) : visit(RuleTag<CorrectedSgdRule<false>>());
  return settings.nesterov ? visit(RuleTag<SgdRule<true>>()) : visit(RuleTag<SgdRule<false>>());
}

}  // namespace owt
