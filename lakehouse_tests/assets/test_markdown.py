"""What comes from outside is shown on the page and makes nothing there: read back by a parser of the page's kind of Markdown."""

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from lakehouse.assets.metadata import markdown_table, markdown_text
from lakehouse.base.text import printable

NAMES = [
    "`](http://127.0.0.1/) ![x](y)",
    "``` code ```",
    "<img src=x onerror=alert(1)><!-- & &lt; &#96;",
    "a | b || c",
    "a\n\n# heading\n- item\n| x |",
    "**bold** _em_ ~~gone~~ \\` \\",
    "[a]: http://127.0.0.1",
    "\x1b[31m\u202e.json",
]


def parsed(markdown: str) -> list[Token]:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.validateLink = lambda _url: True  # the page shows pictures that stand in the text itself
    return parser.parse(markdown)


def inlines(markdown: str) -> list[list[Token]]:
    return [token.children or [] for token in parsed(markdown) if token.type == "inline"]


def shown(tokens: list[Token]) -> str:
    """The text of a cell that holds nothing but text."""
    assert {token.type for token in tokens} <= {"text"}, tokens
    return "".join(token.content for token in tokens)


def cells(markdown: str, columns: int) -> list[list[str]]:
    tokens = parsed(markdown)
    assert [token.type for token in tokens if token.level == 0] == ["table_open", "table_close"], (
        markdown
    )
    found = [shown(inline) for inline in inlines(markdown)]
    return [found[place : place + columns] for place in range(0, len(found), columns)]


@given(
    st.lists(
        st.tuples(
            st.one_of(st.text(), st.sampled_from(NAMES)), st.text("\\`*_[]<>&|~!#-+=:.()a \n")
        ),
        max_size=3,
    )
)
def test_the_cells_of_a_table_show_whatever_they_were_given(rows: list[tuple[str, str]]) -> None:
    wanted = [[" ".join(printable(cell).split(" ")).strip(" ") for cell in row] for row in rows]
    assert cells(markdown_table(["name", "why"], rows), 2) == [["name", "why"], *wanted]


def test_a_text_that_acts_on_nothing_stays_as_it_is() -> None:
    expected = "landing/part-0001 (5 bytes): 1.5 MiB, 3 of 4!"
    assert markdown_text("landing/part-0001 (5 bytes): 1.5 MiB, 3 of 4!") == expected
