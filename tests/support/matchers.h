// Forms of GoogleMock's matchers that compile faster. This header is compiled into all tests of the folders.
//
// GoogleMock's ElementsAre and AllOf have a type of their own for each list of argument types, and each such type some
// hundred functions. Here ElementsAre of numbers, of texts or of equal types is ElementsAreArray, and AllOf of matchers
// of texts is a matcher of texts. They accept the same values and describe them in the same words.
#pragma once

#include <gmock/gmock.h>

#include <concepts>
#include <initializer_list>
#include <string>
#include <type_traits>

namespace owt {

using TextMatcher = testing::Matcher<const std::string&>;

template <class T, class... Others>
inline constexpr bool kIsOneOf = (std::is_same_v<T, Others> || ...);
template <class T>
inline constexpr bool kMatchesTexts =
    kIsOneOf<T, TextMatcher, testing::PolymorphicMatcher<testing::internal::HasSubstrMatcher<std::string>>,
             testing::PolymorphicMatcher<testing::internal::StartsWithMatcher<std::string>>,
             testing::PolymorphicMatcher<testing::internal::EndsWithMatcher<std::string>>,
             testing::PolymorphicMatcher<testing::internal::MatchesRegexMatcher>>;
template <class T>
inline constexpr bool kIsText = std::is_convertible_v<const T&, std::string>;

// The type to which all arguments of ElementsAre are converted; void if there is none.
template <class First, class... Others>
auto type_of_elements() {
  if constexpr (std::is_arithmetic_v<First> && (std::is_arithmetic_v<Others> && ...))
    return std::common_type<int, First, Others...>();  // int for bool: no std::vector<bool>
  else if constexpr (kIsText<First> && (kIsText<Others> && ...))
    return std::type_identity<std::string>();
  else if constexpr ((kIsText<First> || kMatchesTexts<First>)&&((kIsText<Others> || kMatchesTexts<Others>)&&...))
    return std::type_identity<TextMatcher>();
  else if constexpr (!std::is_array_v<First> && (std::is_same_v<First, Others> && ...))
    return std::type_identity<First>();
  else
    return std::type_identity<void>();
}
template <class... Args>
using TypeOfElements = typename decltype(type_of_elements<Args...>())::type;

}  // namespace owt

namespace testing {  // the namespace in which tests find the others

template <class... Args>
requires(sizeof...(Args) > 0 &&
         !std::is_void_v<owt::TypeOfElements<Args...>>) auto ElementsAre(const Args&... elements) {
  using Type = owt::TypeOfElements<Args...>;
  return ElementsAreArray(std::initializer_list<Type>{static_cast<Type>(elements)...});
}

template <class... Matchers>
requires(sizeof...(Matchers) > 0 && (owt::kMatchesTexts<Matchers> && ...)) owt::TextMatcher
    AllOf(const Matchers&... matchers) {
  return AllOfArray(std::initializer_list<owt::TextMatcher>{static_cast<owt::TextMatcher>(matchers)...});
}

}  // namespace testing
