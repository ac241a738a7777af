"""Go source files -> blocks: the doc comments of packages and of exported declarations (see html_text.py for the block kinds)."""

import re

DECLARATION = re.compile(r'^(package \w+|func (?:\([^)]*\) )?[A-Z]\w*[^{\n]*|type [A-Z]\w*[^{\n]*|(?:var|const) [A-Z]\w*[^\n]*|\t[A-Z]\w*\s[^\n]*|(?:var|const|type) \($)')
DIRECTIVE = re.compile(r'^(//go:|//line|// \+build|//export|/\*|// Copyright|// Use of this|// license|// TODO|// BUG)')


def comment_blocks(lines):
    """Paragraphs, list items and indented code of one comment, its slashes already removed."""
    blocks, text, code = [], [], []

    def flush_text():
        if text:
            joined = re.sub(r'\s+', ' ', ' '.join(text)).strip()
            blocks.append(('h', joined[2:]) if joined.startswith('# ') else ('p', joined))
            text.clear()

    def flush_code():
        while code and not code[-1]:
            code.pop()
        if code:
            blocks.append(('code', '\n'.join(code).expandtabs(4)))
            code.clear()

    for line in lines:
        if line.startswith('\t') or line.startswith('    '):
            flush_text()
            code.append(line[1:] if line.startswith('\t') else line[4:])
        elif not line.strip():
            flush_text()
            if code:
                code.append('')
        else:
            flush_code()
            text.append(line.strip())
    flush_text()
    flush_code()
    return blocks


def file_blocks(path):
    out, comment, inside = [], [], False
    for line in open(path, encoding='utf-8', errors='replace').read().split('\n'):
        if inside:                                   # a /* ... */ comment, used for long package texts
            if '*/' in line:
                inside = False
            else:
                comment.append(line)
        elif line == '/*':
            comment, inside = [], True
        elif line.startswith(('//', '\t//')):
            if DIRECTIVE.match(line.strip()):
                comment = ['skip'] if 'Copyright' in line or 'Use of' in line or 'license' in line else comment
            elif comment != ['skip']:
                comment.append(re.sub(r'^\t?// ?', '', line))
        else:
            found = DECLARATION.match(line)
            if found and comment and comment != ['skip']:
                blocks = comment_blocks(comment)
                if blocks and len(' '.join(t for _, t in blocks)) > 40:
                    declaration = found.group(1).strip()
                    is_package = declaration.startswith('package')
                    if is_package:
                        out.append(('h', declaration[0].upper() + declaration[1:]))
                    elif not declaration.endswith('(') and len(declaration) <= 110 and not line.startswith('\t'):
                        out.append(('sig', declaration))
                    out.extend(blocks)
            comment = []
    return out
