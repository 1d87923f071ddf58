#!/usr/bin/env python3
"""Checks the English of pages and comments: short sentences, no fragments, the field's terms.

  usage: tools/check_english.py [--measure] [FILE...]      (without files: all tracked ones)

Pages (README, CONTRIBUTING, CHANGELOG, docs): the median sentence has at most 20 words, nine of ten have at most 35,
none has more than 45. Code blocks, tables, headings and targets of links do not count. Comments (src, layers, data,
tools, tests, CMakeLists.txt): none begins with "Of", "That", "Those", "But for", "As". Both: none of the phrases below,
except in backticks. Prints file:line, what is wrong and what to write instead; exits 1 if anything is wrong.
--measure prints the median, the 90th percentile and the maximum of words per sentence of each file instead.
"""
import bisect, itertools, os, re, subprocess, sys

MEDIAN, NINE_OF_TEN, LONGEST = 20, 35, 45  # words per sentence of a page

PHRASES = [  # whole words as a regular expression, and what to write instead
    (r'(?<!steps )(?<!step )(?<!fall )(?<!falls )behind(?! a (?:proxy|router))', 'after; back part (of a net)'),
    (r'before the boundary', 'front part (convolutions)'),
    (r'(?:go|goes|going|gone|went) home', 'reduce-scatter; are returned to their owner'),
    (r'brought together', 'all-gather, gathered'),
    (r'in earnest', 'real'),
    (r'to be had', 'possible, available ("Limitations" as a heading)'),
    (r'by turns', 'alternating; transient (stragglers)'),
    (r'(?:hang|hangs|hung) on', 'depends on'),
    (r'(?:go|goes|going|gone|went) on(?: with)?', 'resumes (a run), continues'),
    (r'half wires?', 'bf16 transport'),
    (r'newest (?:weights|copies|ones)', 'current weights, stashed weights'),
    (r'who (?:updates|waits)', 'the rank that updates, its owner; is idle'),
    (r'learnt', 'name it: the loss, the update, the weights'),
    (r"step's order", 'schedule'),
    (r'the star', 'central server (dp-star)'),
    (r'(?:that|those) of', 'repeat the noun, or use a genitive'),
    (r'those (?:that|who|whose|which|with|without|in|on|for|from)', 'repeat the noun'),
    (r'but for', 'except'),
    (r'of so (?:many|much)', 'of N rows: name the number'),
    (r'(?:some|no)body', 'name the rank, thread or function, or use the passive'),
    (r'who ?ever', '"To ...", or name the actor'),
    (r'tells?|told', 'reports, sends, prints; distinguishes'),
    (r'any more', 'no longer'),
]
PHRASES_OF_PAGES = PHRASES + [(r'slices?', 'micro-batch (gradient accumulation)')]
PHRASES_OF_REFERENCE = PHRASES_OF_PAGES + [(r'now|older than|newly|used to be|until now', 'no history in a reference')]
REFERENCE = re.compile(r'docs/(?:commands|recipes|models|files|glossary)\.md$')

FRAGMENT = r'(?:Of|That|Those|But for|As|The same (?:as|for|of|with|in)|(?:By|In|With|From|For) which)\b(?!\()'
WHO = r'Who(?:ever)? [^?]*$'  # no question
FIRST = re.compile(FRAGMENT + '|' + WHO)                  # what a comment must not begin with,
FIRST_BESIDE = re.compile(FRAGMENT + r'|wh(?:ich|ose)\b', re.I)  # one that follows code,
LATER = re.compile(r'(?:Of|Those|But for|Nor)\b|' + WHO)  # and a sentence of a page or within a comment

PAGE = re.compile(r'(?:README|CONTRIBUTING|CHANGELOG)\.md|docs/.*\.md')
CODE = re.compile(r'((src|layers|data|tools|tests)/(.*/)?)?(CMakeLists\.txt|[^/]*\.(h|cpp|cu|cuh|sh|py|cmake))')
CPP_TOKEN = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.S)
HASH = re.compile(r'(?:[^\'"#\\]|\\.|"(?:\\.|[^"\\])*"|\'[^\']*\'|(?<=[^\s(])#)*?(?:(?<=\s)|^)(#+)(?=\s|$)')
HIDDEN = re.compile(r'`[^`]+`|\]\([^)]*\)')
ITEM = re.compile(r'^(?:[-*+]|\d+[.)])\s+|^>\s*')
ABBREVIATION = re.compile(r'\b(e\.g|i\.e|al|vs|cf|approx|Fig|Sec|No|Eq)\.(?=\s)')
SENTENCE_END = re.compile(r'[.!?][)"*_]*\s+(?=["(*_]*[A-Z0-9`])')
WORD = re.compile(r'\w[\w.,/+*=^-]*')


def page_texts(content):
    """Paragraphs and items ('text'), rows and headings ('row'): a list of (kind, [(line number, text)])."""
    texts, fenced, fresh = [], False, True  # fresh: the next line begins a paragraph
    for number, line in enumerate(content.split('\n'), 1):
        text = line.strip()
        if text.startswith(('```', '~~~')):
            fenced, fresh = not fenced, True
        elif fenced or not text or text.startswith('<'):
            fresh = True
        elif fresh or text.startswith(('|', '#')) or ITEM.match(text):
            fresh = text.startswith(('|', '#'))
            texts.append(('row' if fresh else 'text', [(number, ITEM.sub('', text))]))
        else:
            texts[-1][1].append((number, text))
    return texts


def code_texts(name, content):
    """Comments ('text'), and comments that follow code ('beside'): a list of (kind, [(line number, text)])."""
    texts, last = [], None
    starts = [0] + [m.end() for m in re.finditer('\n', content)]
    if name.endswith(('.h', '.cpp', '.cu', '.cuh')):
        spans = [m.span() for m in CPP_TOKEN.finditer(content) if m[0].startswith(('//', '/*'))]
    else:
        hashes = [(start, HASH.match(line)) for start, line in zip(starts, content.split('\n')) if '#' in line]
        spans = [(start + m.start(1), start + len(m.string)) for start, m in hashes if m]
    for begin, end in spans:
        line = bisect.bisect_right(starts, begin) - 1
        column, beside = begin - starts[line], bool(content[starts[line]:begin].strip())
        parts = [(line + 1 + i, t.strip().strip('/*#').strip()) for i, t in enumerate(content[begin:end].split('\n'))]
        joins = not beside and last == (line, column) and parts[0][1] and texts[-1][1][-1][1]
        texts[-1][1].extend(parts) if joins else texts.append(('beside' if beside else 'text', parts))
        last = line + len(parts), column
    return texts


def check(name, measure):
    """Prints what is wrong in a file, or its lengths of sentences. Returns how many places are wrong."""
    content = open(name, encoding='utf-8', errors='replace').read()
    page = name.endswith('.md')
    phrases = PHRASES_OF_REFERENCE if REFERENCE.search(name) else PHRASES_OF_PAGES if page else PHRASES
    pattern = re.compile('|'.join(rf'((?<![\w-])(?:{p})(?![\w-]))' for p, _ in phrases), re.I)
    findings, lengths = [], []
    for kind, parts in page_texts(content) if page else code_texts(name, content):
        text = ' '.join(t for _, t in parts)
        offsets = [0, *itertools.accumulate(len(t) + 1 for _, t in parts)]
        text = HIDDEN.sub(lambda m: m[0][0] + ('x' if m[0][0] == '`' else ' ') * (len(m[0]) - 2) + m[0][-1], text)
        text = ABBREVIATION.sub(r'\1_', text)
        add = lambda at, *what: findings.append((parts[bisect.bisect_right(offsets, at) - 1][0], *what))
        for match in pattern.finditer(text):
            add(match.start(), f"'{match.group()}'", phrases[match.lastindex - 1][1])
        ends = [m.end() for m in SENTENCE_END.finditer(text)] + [len(text)]
        for begin, end in zip([0] + ends, ends) if kind != 'row' else ():
            sentence = text[begin:end].strip()
            if (LATER if page or begin else FIRST_BESIDE if kind == 'beside' else FIRST).match(sentence):
                add(begin, f"begins '{' '.join(sentence.split()[:4])}'", 'a sentence; begin with its subject')
            words = len(WORD.findall(sentence))
            lengths += [words] if words > 2 else []
            if page and words > LONGEST:
                add(begin, f"{words} words: '{sentence[:40]}...'", f'at most {LONGEST}; one fact a sentence')
    lengths.sort()
    median, most = (lengths[(len(lengths) - 1) // 2], lengths[(len(lengths) * 9 - 1) // 10]) if lengths else (0, 0)
    if measure:
        return print(f'{median:4} {most:4} {max(lengths, default=0):4}  {name}') or 0
    if page and (median > MEDIAN or most > NINE_OF_TEN):
        what = f'{median} words per sentence in the median, {most} in the 90th percentile'
        findings.append((1, what, f'at most {MEDIAN} and {NINE_OF_TEN}'))
    for line, what, instead in sorted(findings):
        print(f'{name}:{line}: {what}; write: {instead}')
    return len(findings)


def main():
    options = [a for a in sys.argv[1:] if a.startswith('-')]
    files = [a for a in sys.argv[1:] if not a.startswith('-')]
    if options not in ([], ['--measure']):
        sys.exit(print(__doc__.strip()) or options[0] not in ('-h', '--help'))
    if not files:
        os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
        tracked = subprocess.run(['git', 'ls-files', '-z'], check=True, stdout=subprocess.PIPE, text=True).stdout
        files = [f for f in tracked.split('\0') if (PAGE.fullmatch(f) or CODE.fullmatch(f)) and os.path.exists(f)]
    if options:
        print('words per sentence: median, 90th percentile, maximum')
    found = sum([check(name, bool(options)) for name in files])
    if found:
        sys.exit(f'check_english: error: {found} places; see above')


main()
