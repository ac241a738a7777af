"""HTML documentation pages -> a list of blocks -> Markdown-like text.

A block is a pair (kind, text); the kinds are
  h     a heading                      sig   an API signature
  p     a paragraph                    li    a list item
  code  a code sample (several lines)

Everything that is not the page's own prose or code is left out: navigation, footers, tables of contents, link marks,
tables whose cells hold no sentence.
"""

import re

from lxml import html

# Where the page's own text sits, by generator; the first that matches wins, else <body>.
MAIN = [
    '//*[@id="main-content"]',                       # rustdoc
    '//main//article', '//article[@role="main"]',    # pydata and Furo themes of Sphinx
    '//*[@role="main"]', '//*[@itemprop="articleBody"]',
    '//div[@class="bodywrapper"]', '//div[@class="body"]', '//div[@class="document"]',   # older Sphinx themes
    '//div[@id="page-content"]',                     # Apache httpd
    '//div[@id="apicontent"]',                       # Node.js
    '//main', '//div[@id="content"]', '//body',       # Erlang and others; what has no mark at all
]

DROP_TAGS = {'script', 'style', 'nav', 'header', 'footer', 'button', 'svg', 'noscript', 'iframe', 'img', 'sup', 'form', 'input',
             'select', 'math', 'rustdoc-search', 'rustdoc-toolbar', 'head', 'map', 'object', 'audio', 'video', 'del'}

DROP_CLASSES = set('''
    sidebar src anchor since rightside notable-traits tooltip stab out-of-band buttons nav-wrapper nav-wide-wrapper boring
    rustdoc-breadcrumbs sub-heading test-arrow doc-anchor hideme item-info portability rule-link footnote-reference sidetoc
    playground-button item-table headerlink viewcode-link viewcode-back sphinxsidebar related footer toctree-wrapper contents
    topic-contents localtable toc navheader navfooter spirit-nav copyright-footer linenos gp sphx-glr-download sphx-glr-footer
    sphx-glr-timing prev-next-area prev-next-bottom admonition-see-also seealso breadcrumbs rst-versions navbar
    nosearch menubar mobile-menu fancy_title fancy_toc fancy-format-toc api_metadata stability changelog mark
    qv up seealso-list sectionauthor versionmodified-hidden docutils-citation math nblast nboutput output_area
    plot-references figure-caption toc-backref top langs top-nav download-link jupyter-widgets pagination related-links
    sig-paren-hidden srclink source-link xref-index indextable modindextable footnote-list footnotes citation citation-list
    toplang bottomlang navfooter title-anchors section-version panel-sections flipMenu erlang-logo-wrapper footer-wrapper
    svnversion releaseinfo legalnotice author authorgroup copyright revhistory
'''.split())

DROP_IDS = set('''
    trait-implementations-list trait-implementations synthetic-implementations synthetic-implementations-list
    blanket-implementations blanket-implementations-list implementors implementors-list foreign-impls deref-methods-str
    print-warning sidebar menu-bar synthetic-implementors synthetic-implementors-list object-safety dyn-compatibility
    toc table-of-contents quickview preamble-nav footer navigation comments_section comments searchbox indices-and-tables
    references bibliography see-also nav langs hd ft global-nav-bottom langs langbox
'''.split())

HEADINGS = {'h1', 'h2', 'h3', 'h4', 'h5', 'h6'}
BLOCKS = HEADINGS | {'p', 'pre', 'li', 'table', 'blockquote', 'div', 'section', 'ul', 'ol', 'dl', 'dt', 'dd', 'details', 'summary',
                     'main', 'article', 'figure', 'aside', 'tbody', 'tr', 'td', 'hr'}
CODE_TAGS = {'code', 'tt', 'kbd', 'samp'}

MAX_CODE_LINES = 40
MAX_CODE_COLUMNS = 120

SPACE = re.compile(r'\s+')
TYPOGRAPHY = str.maketrans({'\u200b': None, '\u00ad': None, '\ufeff': None, '§': None, '¶': None, '\uf0c1': None,
                            '“': '"', '”': '"', '’': "'", '‘': "'", '…': '...', '–': '-', '—': '-', '−': '-', '‑': '-',
                            '\u00a0': ' ', '\u2009': ' ', '→': '->', '×': 'x', '•': '-', '≥': '>=', '≤': '<='})


def is_element(node):
    return isinstance(node.tag, str)


def dropped(node):
    if not is_element(node) or node.tag in DROP_TAGS:
        return True
    classes = node.get('class')
    if classes and not DROP_CLASSES.isdisjoint(classes.split()):
        return True
    return node.get('id') in DROP_IDS


def plain(node, preformatted=False, quote_code=True):
    """The text inside `node`; inline code gets backticks unless the text is preformatted or a heading."""
    out = [node.text or '']
    for child in node:
        if not dropped(child):
            if child.tag == 'br':
                out.append('\n' if preformatted else ' ')
            elif child.tag in CODE_TAGS and quote_code and not preformatted:
                inner = plain(child, quote_code=False).strip()
                out.append(f'`{inner}`' if inner and '`' not in inner else inner)
            else:
                out.append(plain(child, preformatted, quote_code))
        out.append(child.tail or '')
    return ''.join(out)


def one_line(text):
    return SPACE.sub(' ', text.translate(TYPOGRAPHY)).strip()


def code_lines(node):
    text = plain(node, preformatted=True).translate(TYPOGRAPHY).expandtabs(4)
    lines = [line.rstrip() for line in text.split('\n')]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def has_block_inside(node):
    return any(is_element(d) and d.tag in BLOCKS for d in node.iter() if d is not node)


def leading_text(node):
    """The inline text of a list item before its first block."""
    parts = [node.text or '']
    for child in node:
        if is_element(child) and child.tag in BLOCKS:
            break
        if not dropped(child):
            inner = plain(child, quote_code=child.tag not in CODE_TAGS)
            parts.append(f'`{inner.strip()}`' if child.tag in CODE_TAGS else inner)
        parts.append(child.tail or '')
    return one_line(''.join(parts))


def walk(node, out):
    if dropped(node):
        return
    tag = node.tag
    if tag in HEADINGS:
        text = one_line(plain(node, quote_code=False))
        if text:
            out.append(('sig' if 'code-header' in (node.get('class') or '') else 'h', text))
    elif tag == 'pre':
        lines = code_lines(node)
        if 0 < len(lines) <= MAX_CODE_LINES and max(map(len, lines)) <= MAX_CODE_COLUMNS:
            out.append(('code', '\n'.join(lines)))
    elif tag == 'dt' and ('sig' in (node.get('class') or '') or node.get('id')):
        text = one_line(plain(node, quote_code=False))
        if text and len(text) <= 120:
            out.append(('sig', text.removesuffix('[source]').strip()))
    elif tag in ('p', 'dt', 'summary') and not (tag != 'p' and has_block_inside(node)):
        text = one_line(plain(node))
        if text:
            out.append(('p', text))
    elif tag == 'tr':
        for cell in node:                            # a cell counts when it holds a sentence
            if is_element(cell) and not has_block_inside(cell):
                text = one_line(plain(cell))
                if text.endswith('.') and text.count(' ') >= 7:
                    out.append(('p', text))
            elif is_element(cell):
                walk(cell, out)
    elif tag in ('li', 'dd'):
        kind = 'li' if tag == 'li' else 'p'
        if not has_block_inside(node):
            text = one_line(plain(node))
            if text:
                out.append((kind, text))
            return
        start = len(out)
        text = leading_text(node)
        if text:
            out.append((kind, text))
        for child in node:
            if is_element(child) and (child.tag in BLOCKS or has_block_inside(child)):
                walk(child, out)
        if tag == 'li' and len(out) > start and out[start][0] == 'p':
            out[start] = ('li', out[start][1])
    elif tag in ('div', 'td', 'blockquote') and not has_block_inside(node):
        text = one_line(plain(node))
        if text:
            out.append(('p', text))
    else:
        if tag in ('td', 'body', 'div', 'section', 'blockquote') and node.text and len(node.text.split()) > 7:
            text = leading_text(node)
            if text:
                out.append(('p', text))
        for child in node:
            walk(child, out)


def page_blocks(path):
    """Blocks of one page; an empty list when it has none."""
    with open(path, 'rb') as file:
        data = file.read()
    if not data.strip():
        return []
    encoding = 'latin-1' if re.search(rb'charset="?iso-8859-1', data[:2000], re.I) else 'utf-8'
    try:
        root = html.document_fromstring(data.decode(encoding, errors='replace').encode(), parser=html.HTMLParser(encoding='utf-8'))
    except Exception:                                # a page lxml cannot read is no text
        return []
    for query in MAIN:
        found = root.xpath(query)
        if found:
            break
    else:
        return []
    blocks = []
    for node in found[:1]:
        for child in ([node] if node.tag != 'body' else list(node)):
            walk(child, blocks)
    return blocks
