#include "data/jpeg/libjpeg.h"

#include <gtest/gtest.h>

namespace owt::libjpeg_test {
namespace {

TEST(JpegErrors, TheNumbersOfMessagesAreThoseOfTheLibrary) {
  const JpegErrors errors(JpegErrors::give_up);
  EXPECT_EQ(errors.base.last_jpeg_message + 1, JMSG_LASTMSGCODE);
  EXPECT_STREQ(errors.base.jpeg_message_table[JWRN_JPEG_EOF], "Premature end of JPEG file");
  EXPECT_STREQ(errors.base.jpeg_message_table[JWRN_HUFF_BAD_CODE], "Corrupt JPEG data: bad Huffman code");
}

}  // namespace
}  // namespace owt::libjpeg_test
