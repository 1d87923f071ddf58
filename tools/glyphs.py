"""Draws the images of tools/glyphs.sh and writes their lists; see there.

  usage: glyphs.py WORK --held-out FILE [--side PIXELS] [--classes N] [--faces N] PACKAGE...

Writes WORK/images/FACE/BLOCK/CODE.jpg, WORK/classes.txt and WORK/{train,val,test}.txt. A block is a range of 4,096 code
points. A block of a face is drawn in a temporary folder, which is renamed when it is complete, so that an interrupted
run loses only the blocks in progress.
"""
import argparse, collections, concurrent.futures, ctypes, fcntl, hashlib, itertools, multiprocessing, os, shutil
import signal, subprocess, sys, time

try:
    from PIL import Image, ImageDraw, ImageFont, features
    from fontTools.ttLib import TTFont
except ImportError as missing:
    sys.exit(f'glyphs: error: {missing}; apt-get install python3-pil python3-fonttools')

# Han ideographs and Hangul syllables. Other scripts have letters that look the same (Latin A, Greek Alpha) or differ
# only in size (kana). Compatibility ideographs repeat others.
SCRIPTS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x20000, 0x2A6DF), (0x2A700, 0x2EBE0),
           (0x30000, 0x323AF))
FEWEST_FACES = 14
BLOCK = 4096
QUALITY = 95  # JPEG's
PR_SET_PDEATHSIG = 1  # its value in <linux/prctl.h>
NO_CHARACTER = chr(0x10FFFF)  # drawn as the face's box for missing glyphs


def font_files(packages):
    """The paths of the packages' font files by face: a face is a font file, or the first font of a collection."""
    listed = subprocess.run(['dpkg-query', '-L', *packages], check=True, capture_output=True, text=True).stdout.split('\n')
    return {os.path.basename(path): path for path in sorted(listed) if path.endswith(('.ttf', '.ttc', '.otf'))}


def code_points(path):
    """The code points of SCRIPTS in the face's character map."""
    with TTFont(path, fontNumber=0, lazy=True) as font:
        mapped = font.getBestCmap() or {}
    return {code for code in mapped if any(first <= code <= last for first, last in SCRIPTS)}


class Pen:
    """Draws characters of one face, black on white, centred."""

    def __init__(self, path, side):
        self.path, self.side = path, side
        self.font = self.at_size(side * 13 // 16)
        self.missing = self.draw(NO_CHARACTER)

    def at_size(self, pixels):
        return ImageFont.truetype(self.path, pixels, layout_engine=ImageFont.Layout.BASIC)

    def draw(self, character):
        font, most = self.font, self.side - 4
        left, top, right, bottom = font.getbbox(character)
        longest = max(right - left, bottom - top)
        if longest > most:
            font = self.at_size(max(self.side * 13 // 16 * most // longest, 1))
            left, top, right, bottom = font.getbbox(character)
        image = Image.new('L', (self.side, self.side), 255)
        ImageDraw.Draw(image).text(((self.side - left - right) // 2, (self.side - top - bottom) // 2), character, 0, font)
        return image

    def glyph(self, character):
        """The image; None where the face has no ink, or only its box for missing glyphs."""
        image = self.draw(character)
        return None if image.getextrema()[0] == 255 or image == self.missing else image


def draw_block(task):
    """Draws a block of a face into `folder`, with a file `drawings` of lines `code point, hash of the pixels`."""
    path, folder, codes, side = task
    part = folder + '.part'
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    pen = Pen(path, side)
    lines = []
    for code in codes:
        image = pen.glyph(chr(code))
        if image is not None:
            image.save(f'{part}/{code:04X}.jpg', quality=QUALITY)
            lines.append(f'{code:04X} {hashlib.blake2b(image.tobytes(), digest_size=8).hexdigest()}\n')
        with counter.get_lock():
            counter.value += 1
    with open(f'{part}/drawings', 'w') as out:
        out.writelines(lines)
    os.rename(part, folder)


def begin_worker(shared):
    """A worker ends with its parent, even if that is killed, so that no block is drawn by two runs."""
    global counter
    counter = shared
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def workers(shared=None):
    return concurrent.futures.ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context('fork'),
                                                  begin_worker, (shared,))


def report(done, count, seconds):
    rate = done / max(seconds, 1e-9)
    left = (count - done) / rate if rate else 0
    end = '\r' if sys.stderr.isatty() else '\n'
    print(f'glyphs: {done} of {count} drawn, {rate:.0f} a second, {int(left) // 60}:{int(left) % 60:02} left', end=end,
          file=sys.stderr, flush=True)


def draw_all(tasks):
    """Draws the blocks that are missing, on all cores."""
    tasks = [task for task in tasks if not os.path.exists(task[1])]
    count = sum(len(codes) for _, _, codes, _ in tasks)
    shared, begun = multiprocessing.Value('q', 0), time.time()
    with workers(shared) as pool:
        rest = [pool.submit(draw_block, task) for task in tasks]
        try:
            while rest:
                ended, rest = concurrent.futures.wait(rest, 1 if sys.stderr.isatty() else 10,
                                                      concurrent.futures.FIRST_EXCEPTION)
                for task in ended:
                    task.result()
                report(shared.value, count, time.time() - begun)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if sys.stderr.isatty():
        print(file=sys.stderr)


def hold(work):
    """Waits until no other process works in the folder. The lock ends with this process and its workers."""
    lock = os.open(f'{work}/lock', os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f'glyphs: waiting for another run in {work}', file=sys.stderr, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)


def keep_settings(work, settings):
    """Writes everything that the images depend on; ends the program if the folder has images of other settings."""
    path = f'{work}/settings.txt'
    if not os.path.exists(path):
        write_atomically(path, settings)
    with open(path) as lines:
        for there, now in itertools.zip_longest(lines, settings, fillvalue='nothing\n'):
            if there != now:
                sys.exit(f'glyphs: error: {work} was begun with other settings or packages ({there.strip()} there, '
                         f'{now.strip()} now); choose another folder')


def read_drawings(folders):
    """The hash of each code point that a face has drawn. A drawing of several code points shows none of them."""
    found = {}
    for folder in folders:
        with open(f'{folder}/drawings') as lines:
            found.update((int(code, 16), hash_) for code, hash_ in map(str.split, lines))
    uses = collections.Counter(found.values())
    return {code: int(hash_, 16) for code, hash_ in found.items() if uses[hash_] == 1}


def write_atomically(path, lines):
    with open(path + '.part', 'w', encoding='utf-8') as out:
        out.writelines(lines)
    os.rename(path + '.part', path)


def wanted_codes(maps, held_out, classes):
    """The code points that FEWEST_FACES faces map; with `classes`, this many: the ones that most held-out faces map, of
    these the ones that most faces map, of these the lowest."""
    faces = collections.Counter(code for codes in maps.values() for code in codes)
    tests = collections.Counter(code for face in held_out if face in maps for code in maps[face])
    codes = sorted((-tests[code], -count, code) for code, count in faces.items() if count >= FEWEST_FACES)
    return sorted(code for _, _, code in codes[:classes])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('work')
    parser.add_argument('packages', nargs='+')
    parser.add_argument('--held-out', required=True)
    parser.add_argument('--side', type=int, default=64)
    parser.add_argument('--classes', type=int)
    parser.add_argument('--faces', type=int)
    options = parser.parse_args()

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    hold(options.work)
    files = font_files(options.packages)
    with open(options.held_out) as lines:
        split_of = {face: split for split, face in (line.split() for line in lines if not line.startswith('#'))}
    if not set(split_of) <= set(files):
        sys.exit(f'glyphs: error: {options.held_out} names files that no package has: {set(split_of) - set(files)}')
    versions = subprocess.run(['dpkg-query', '-W', *options.packages], check=True, capture_output=True, text=True).stdout
    keep_settings(options.work, [
        f'side {options.side}\n', f'classes {options.classes}\n', f'faces {options.faces}\n',
        *(f'{library} {features.version(library)}\n' for library in ('pil', 'freetype2', 'libjpeg_turbo')),
        *(f'{split} {face}\n' for face, split in split_of.items()), *versions.splitlines(keepends=True)])
    # Held-out faces come first, so that a training drawing with the same pixels is the one that is left out.
    faces = sorted((face for face in files if split_of.get(face) != 'unused'),
                   key=lambda face: (('test', 'val', 'train').index(split_of.get(face, 'train')), face))

    print(f'glyphs: reading the character maps of {len(faces)} faces', file=sys.stderr, flush=True)
    with workers() as pool:
        maps = dict(zip(faces, pool.map(code_points, [files[face] for face in faces])))
    wanted = wanted_codes(maps, split_of, options.classes)
    blocks = collections.defaultdict(list)
    for code in wanted:
        blocks[code // BLOCK].append(code)
    folders = collections.defaultdict(list)
    tasks = []
    for face in faces:
        os.makedirs(f'{options.work}/images/{face}', exist_ok=True)
        for block, codes in blocks.items():
            if codes := [code for code in codes if code in maps[face]]:
                folders[face].append(f'{options.work}/images/{face}/{block:02X}')
                tasks.append((files[face], folders[face][-1], codes, options.side))
    draw_all(tasks)

    drawings = collections.defaultdict(dict)  # code point -> hash -> the first face with this drawing
    for face in faces:
        for code, hash_ in read_drawings(folders[face]).items():
            drawings[code].setdefault(hash_, face)
    classes = [code for code in wanted if len(drawings[code]) >= FEWEST_FACES]
    lists = {'train': [], 'val': [], 'test': []}
    for label, code in enumerate(classes):
        of_class = collections.defaultdict(list)
        for face in drawings[code].values():
            of_class[split_of.get(face, 'train')].append(face)
        if options.faces:
            of_class['train'] = sorted(of_class['train'], key=lambda face: hashlib.blake2b(
                f'{code} {face}'.encode()).digest())[:options.faces]
        for split, of_split in of_class.items():
            lists[split] += [f'{face}/{code // BLOCK:02X}/{code:04X}.jpg {label}\n' for face in sorted(of_split)]
    write_atomically(f'{options.work}/classes.txt', [f'U+{code:04X} {chr(code)}\n' for code in classes])
    for split, lines in lists.items():
        write_atomically(f'{options.work}/{split}.txt', lines)
    drawn = sum(len(codes) for _, _, codes, _ in tasks)
    print(f'glyphs: {len(classes)} classes with {FEWEST_FACES} drawings or more; {drawn} drawings, of which '
          f'{sum(map(len, drawings.values()))} differ; '
          + ', '.join(f'{len(lines)} {split}' for split, lines in lists.items()), file=sys.stderr)


if __name__ == '__main__':
    try:
        main()
    except OSError as error:
        sys.exit(f'glyphs: error: {error}')
