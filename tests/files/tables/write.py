"""Writes the tables beside it, each with one flaw of real files; expected.toml says what of.

Run it after a change: python tests/files/tables/write.py
"""

import gzip
import io
import itertools
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

HERE = Path(__file__).parent
CITIES = ["Oslo", "Rome", "Bern", "Lima"]


def rows(values, name="x", separator=",", target=None):
    """A table of one column and a target, whose labels are 0 and 1 in turn."""
    pairs = zip(values, target or itertools.cycle("01"), strict=False)
    lines = [f"{name}{separator}y", *(f"{value}{separator}{label}" for value, label in pairs)]
    return "\n".join(lines) + "\n"


def numbers(count, marks):
    """So many numbers with the marks among them, one after every fourth."""
    values = [f"{2 + k / 4:g}" for k in range(count)]
    for k, mark in enumerate(marks):
        values.insert(4 * k + 3, mark)
    return values


def quoted(values):
    return [f'"{value}"' for value in values]


CITY = "city,x,y\nZürich,1.5,0\nMálaga,2.5,1\nOslo,3.5,0\n"
PLAIN = "city,x,y\nOslo,1.5,0\nRome,2.5,1\nBern,3.5,0\n"

# ---- Encodings -----------------------------------------------------------------------------------

TABLES = {
    "latin-1.csv": CITY.encode("latin-1"),
    "windows-1252.csv": "note,price,y\n“good”,1.5,0\nit’s €,2.5,1\nok,3.5,0\n".encode("cp1252"),
    "utf-8-bom.csv": CITY.encode("utf-8-sig"),
    "utf-16-le-bom.csv": b"\xff\xfe" + CITY.encode("utf-16-le"),
    "utf-16-be-bom.csv": b"\xfe\xff" + CITY.encode("utf-16-be"),
    "utf-16-le.csv": CITY.encode("utf-16-le"),
    "utf-16-be.csv": CITY.encode("utf-16-be"),
    "utf-8-broken.csv": CITY.encode() + b"M\xfcnchen,4.5,1\n",
    "nul-bytes.csv": "city,x,y\nOslo\0\0,1.5,0\nRome,2.5\0,1\nBern,3.5,0\n",
    "ctrl-z.csv": PLAIN + "\x1a",
    "zero-width.csv": "\ufeff\ufeffcity,x,y\nOslo,1.5,0\nRome,2.5,1\n",
}

# ---- Separators ----------------------------------------------------------------------------------

TABLES |= {
    "semicolons.csv": PLAIN.replace(",", ";"),
    "tabs.csv": PLAIN.replace(",", "\t"),
    "bars.csv": PLAIN.replace(",", "|"),
    "tabs.tsv": PLAIN.replace(",", "\t"),
    "commas.tsv": PLAIN,
    "sep-line.csv": "sep=;\r\n" + PLAIN.replace(",", ";").replace(".", ",").replace("\n", "\r\n"),
    "comma-in-name.csv": '"price, net";city;y\n1,5;Oslo;0\n2,5;Rome;1\n3,5;Bern;0\n',
    "commas-in-text.csv": "what;x;y\nred, large;1.5;0\nblue, small;2.5;1\nred, small;3.5;0\n",
    "blanks-after-commas.csv": "city, x, y\nOslo, 1.5, 0\nRome, 2.5, 1\nBern, 3.5, 0\n",
}

# ---- Quotes --------------------------------------------------------------------------------------

TABLES |= {
    "single-quotes.csv": "place,x,y\n'Oslo, Norway',1.5,0\n'Rome, Italy',2.5,1\n'Bern',3.5,0\n",
    "apostrophes.csv": "name,x,y\nO'Brien,1.5,0\n'tis,2.5,1\nD'Angelo,3.5,0\n",
    "quoted-line-breaks.csv": 'note,x,y\n"two\nlines",1.5,0\n"3\r\nmore\r\nlines",2.5,1\nok,3,0\n',
    "doubled-quotes.csv": 'note,x,y\n"he said ""no""",1.5,0\n"""yes""",2.5,1\nok,3.5,0\n',
    "inch-marks.csv": 'size,x,y\n6" pipe,1.5,0\n12" pipe,2.5,1\n6" pipe,3.5,0\n',
    "unclosed-quote.csv": 'note,x,y\nok,1.5,0\n"never closed,2.5,1\nok,3.5,0\nok,4.5,1\n',
    "quoted-numbers.csv": '"city","x","y"\n"Oslo","1.5","0"\n"Rome","2.5","1"\n"Bern","","0"\n',
    "quoted-header.csv": '"city","x","y"\nOslo,1.5,0\nRome,2.5,1\n',
}

# ---- Lines ---------------------------------------------------------------------------------------

TABLES |= {
    "crlf.csv": PLAIN.replace("\n", "\r\n"),
    "cr.csv": PLAIN.replace("\n", "\r"),
    "mixed-line-ends.csv": "city,x,y\r\nOslo,1.5,0\nRome,2.5,1\r\nBern,3.5,0\n",
    "no-final-line-end.csv": PLAIN.rstrip("\n"),
    "blank-lines.csv": "city,x,y\n\nOslo,1.5,0\n\n\nRome,2.5,1\nBern,3.5,0\n\n\n",
    "empty-rows.csv": PLAIN + ",,\n,,\n",
    "too-many-values.csv": PLAIN + "Lima,4.5,1,9\n",
    "too-few-values.csv": PLAIN + "Lima,4.5\n",
    "title-lines.csv": "Sales of the north\n\n" + PLAIN,
    "comment-line.csv": "# made on Monday\n" + PLAIN,
    "totals-line.csv": rows(numbers(20, [])) + "Total,\n",
    "units-line.csv": "weight,height,y\n(kg),(cm),\n"
    + "".join(f"{60 + k},{170 + k % 7},{k % 2}\n" for k in range(20)),
}

# ---- Headers -------------------------------------------------------------------------------------

TABLES |= {
    "blank-name.csv": "city,,y\nOslo,1.5,0\nRome,2.5,1\nBern,3.5,0\n",
    "repeated-names.csv": "x,x,y\n1,1.5,0\n2,2.5,1\n",
    "trailing-separators.csv": PLAIN.replace("\n", ",\n"),
    "trailing-separators-below.csv": PLAIN.replace("0\n", "0,\n").replace("1\n", "1,\n"),
    "blanks-around-names.csv": " city , x ,y \nOslo,1.5,0\nRome,2.5,1\nBern,3.5,0\n",
    "index-column.csv": ",city,x,y\n0,Oslo,1.5,0\n1,Rome,2.5,1\n2,Bern,3.5,0\n",
    "no-header.csv": "5.1,3.5,Oslo,0\n4.9,3.0,Rome,1\n4.7,3.2,Bern,0\n",
    "years-as-names.csv": "city,2019,2020,y\nOslo,1.5,2.5,0\nRome,2.5,3.5,1\n",
    "header-only.csv": "city,x,y\n",
    "empty.csv": "",
    "blank.csv": "\n  \n\n",
    "one-column.csv": "y\n0\n1\n0\n",
}

# ---- Missing numbers -----------------------------------------------------------------------------

TABLES |= {
    "question-marks.csv": rows(numbers(40, ["?", "?", "?"])),
    "dashes.csv": rows(numbers(40, ["-", "--", "-"])),
    "points.csv": rows(numbers(40, [".", ".", "."])),
    "blanks.csv": rows(numbers(40, [" ", "   ", " "])),
    "none-words.csv": rows(numbers(40, ["None", "none", "NONE"])),
    "usual-words.csv": rows(numbers(5, ["N/A", "#N/A", "NaN", "null", "NA", "nan", "n/a", ""])),
    "excel-errors.csv": rows(numbers(40, ["#DIV/0!", "#VALUE!", "#REF!"])),
    "words-for-missing.csv": rows(numbers(40, ["unknown", "not asked", "unknown"])),
    "minus-999.csv": rows(numbers(40, ["-999", "-999", "-999"])),
    "six-words.csv": rows(numbers(120, ["a", "b", "c", "d", "e", "f"])),
    "many-question-marks.csv": rows(numbers(40, ["?"] * 12)),
    "words-among-numbers.csv": rows(numbers(100, ["low"] * 20)),
    "mostly-numbers.csv": rows(numbers(70, []) + ["low", "high", "none seen"] * 10),
    "marks-in-whole-numbers.csv": rows([*map(str, range(30)), "?", "?"]),
}

# ---- Numbers as people write them ----------------------------------------------------------------

TABLES |= {
    "decimal-commas.csv": rows(["1,5", "2", "-0,25", "1000,75"], separator=";"),
    "decimal-commas-quoted.csv": rows(quoted(["1,5", "2,25", "-0,25", "1000,75"])),
    "thousands.csv": rows(quoted(["1,234.50", "12.5", "-2,500.00", "1,000,000.25"])),
    "thousands-whole.csv": rows(quoted(["1,234", "12,500", "-2,500", "950"])),
    "thousands-points.csv": rows(["1.234,50", "12,5", "-2.500,00", "1.000.000,25"], separator=";"),
    "thousands-spaces.csv": rows(
        ["1\u00a0234,5", "12,5", "-2\u202f500,0", "1 000 000,25"], separator=";"
    ),
    "thousands-apostrophes.csv": rows(["1'234.50", "12.5", "-2’500.00", "1'000'000.25"]),
    "points-with-three-digits.csv": rows(["1.234", "2.500", "12.125", "3.875"]),
    "dollars.csv": rows(quoted(["$500.00", "$1,200.50", "-$3.25", "$0.75"])),
    "euros.csv": rows(["€ 1.234,50", "12,00 €", "€ -3,25", "€ 0,75"], separator=";"),
    "currency-codes.csv": rows(quoted(["USD 500.00", "USD 1,200.50", "USD 3.25", "USD 0.75"])),
    "two-currencies.csv": rows(["$500", "€20", "$3", "€75"]),
    "brackets.csv": rows(quoted(["(1,200.00)", "350.25", "(0.75)", "1,000.00"])),
    "per-cent.csv": rows(["49.5%", "100%", "-3.25 %", "0%"]),
    "per-cent-mixed.csv": rows([f"{k}%" if k % 5 < 2 else f"{k / 100}" for k in range(110)]),
    "plus-signs.csv": rows(["+1.5", "-2", "+0.25", "3"]),
    "unicode-minus.csv": rows(["−1.5", "2", "−0.25", "3"]),
    "scientific.csv": rows(["1e-3", "1.5E+10", "2", "-4e2"]),
    "infinite.csv": rows(["1.5", "inf", "-inf", "1e400"]),
    "hexadecimal.csv": rows(["0x1F", "0x2A", "0x1F", "0x00"]),
    "units.csv": rows(["12 kg", "13.5 kg", "11 kg", "9 kg"]),
    "leading-zeros.csv": rows(["00123", "01234", "00007", "09210"], name="zip"),
    "blanks-around-numbers.csv": rows([" 1.5", "2 ", "  3.25  ", "4"]),
    "whole-and-not.csv": rows(["1", "2.0", "3.5", "4"]),
    "zero-width-blanks.csv": rows(["1.5\u200b", "\ufeff2.5", "3.5", "4.5"]),
}

# ---- True or false -------------------------------------------------------------------------------

TABLES |= {
    "true-false.csv": rows(["true", "False", "TRUE", "false"]),
    "true-false-missing.csv": rows(["true", "", "FALSE", "NA", "True", "false"]),
    "true-false-marks.csv": rows(["true", "false"] * 10 + ["?"]),
    "yes-no.csv": rows(["yes", "no", "", "no", "yes", "no"]),
    "t-f.csv": rows(["T", "F", "T", "F"]),
}

# ---- Dates ---------------------------------------------------------------------------------------

TABLES |= {
    "dates.csv": rows(["2024-05-01", "2024-12-31", "", "2023-02-28"]),
    "dates-day-first.csv": rows(["16/11/2022", "01/12/2022", "NA", "05/06/2023"]),
    "dates-month-first.csv": rows(["11/16/2022", "12/01/2022", "NA", "06/05/2023"]),
    "dates-ambiguous.csv": rows(["01/02/2024", "03/04/2024", "05/06/2024", "12/11/2023"]),
    "dates-points.csv": rows(["16.11.2022", "01.12.2022", "", "5.6.2023"]),
    "dates-points-ambiguous.csv": rows(["01.02.2024", "03.04.2024", "05.06.2024", "12.11.2023"]),
    "dates-dashes.csv": rows(["16-11-2022", "01-12-2022", "05-06-2023", "31-01-2023"]),
    "dates-month-names.csv": rows(["16-Nov-2022", "01-Dec-2022", "05-Jun-2023", "31-Jan-2023"]),
    "dates-in-words.csv": rows(quoted(["Nov 16, 2022", "December 1, 2022", "Jun 5, 2023"])),
    "dates-year-slash.csv": rows(["2022/11/16", "2022/12/01", "2023/06/05"]),
    "dates-two-digit-years.csv": rows(["16/11/22", "01/12/22", "05/06/99", "31/01/23"]),
    "dates-with-times.csv": rows(["16/11/2022 14:30", "01/12/2022 00:00", "05/06/2023 23:59"]),
    "dates-am-pm.csv": rows(["11/16/2022 2:30 PM", "12/01/2022 12:00 AM", "06/05/2023 11:59 pm"]),
    "dates-time-zones.csv": rows(
        ["2022-11-16T14:30:00+01:00", "2022-12-01T00:00:00Z", "2023-06-05 23:59:00-0500"]
    ),
    "dates-zero.csv": rows(["2024-05-01", "0000-00-00", "2023-02-28", "0000-00-00"] * 6),
    "dates-with-marks.csv": rows([f"2024-05-{k:02}" for k in range(1, 29)] + ["unknown", "?"]),
    "dates-mixed-orders.csv": rows(
        [f"{k % 28 + 1}/12/2022" if k % 3 else f"12/{k % 28 + 1}/2022" for k in range(110)]
    ),
    "dates-impossible.csv": rows(
        [f"{k % 28 + 1}/12/2022" for k in range(108)] + ["30/02/2022", "31/06/2022"]
    ),
    "dates-compact.csv": rows(["20221116", "20221201", "20230605", "20230131"]),
    "times-of-day.csv": rows(["14:30", "00:00", "23:59", "07:05"]),
}

# ---- Texts ---------------------------------------------------------------------------------------

TABLES |= {
    "text-na.csv": rows(["red", "N/A", "NA", "blue", "", "red"], name="colour"),
    "text-marks.csv": rows(["red", "?", "blue", "-", "red", "blue"], name="colour"),
    "text-nearly-unique.csv": rows([f"no {k}{CITIES[k % 4]}" for k in range(114)] + ["no"] * 6),
    "id-column.csv": "id,x,y\n" + "".join(f"{1000 + k},{k * 7 % 11},{k % 2}\n" for k in range(120)),
    "constant.csv": "country,x,y\n" + "".join(f"NO,{k * 7 % 11},{k % 2}\n" for k in range(20)),
    "empty-column.csv": "memo,x,y\n" + "".join(f",{k * 7 % 11},{k % 2}\n" for k in range(20)),
}

# ---- Labels --------------------------------------------------------------------------------------

TABLES |= {
    "labels-case.csv": rows(numbers(6, []), target=["yes", " Yes", "YES", "yes", "no", "No"]),
    "labels-nul.csv": rows(numbers(4, []), target=["yes", "yes\0", "no", "no"]),
    "labels-numbers.csv": rows(numbers(5, []), target=["1", "1.0", "0", "0.0", "1"]),
    "labels-missing.csv": rows(numbers(6, []), target=["yes", "?", "no", "NA", "", "-"]),
    "labels-none.csv": rows(numbers(6, []), target=["none", "mild", "severe"] * 2),
    "labels-plus-minus.csv": rows(numbers(5, []), target=["+", "-", "?", "+", "-"]),
    "labels-one-class.csv": rows(numbers(3, []), target=["yes", "Yes", "YES"]),
}

# ---- Files that are something else ---------------------------------------------------------------


def workbook():
    """The least that is an Excel file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("[Content_Types].xml", "xl/workbook.xml", "xl/worksheets/sheet1.xml"):
            file.writestr(zipfile.ZipInfo(name), "<?xml version='1.0'?><x/>")
    return packed.getvalue()


def parquet():
    table = pa.table({"city": ["Oslo", "Rome", "Bern"], "x": [1.5, 2.5, 3.5], "y": [0, 1, 0]})
    written = io.BytesIO()
    pa.parquet.write_table(table, written, store_schema=False)
    return written.getvalue()


TABLES |= {
    "decimal-commas-three.csv": rows(["0,126", "-0,132", "1,500"], separator=";"),
    "decimal-commas-unclear.csv": rows(["1,126", "2,132", "3,500"], separator=";"),
    "zero-one-true.csv": rows(["0", "1", "true", "0"] * 5),
    "titles-padded.csv": "Report 2023,,\n,,\nage,rate,y\n31,1.5,0\n42,2.5,1\n",
    "titles-with-commas.csv": (
        "Created by: A. Smith, Sales\nage,rate,city,y\n31,1.5,Oslo,0\n42,2.5,Rome,1\n"
    ),
    "header-too-short.csv": "x,y\n1,2,0\n3,4,1\n5,6,0\n",
    "points-unclear.csv": rows(["4.904", "1.413", "2.100"], separator=";"),
    "dates-two-styles.csv": rows(["07.09.2022", "2021-04-23", "31.12.2020", "2020-02-01"]),
    "header-par1.csv": rows(["1", "2", "3"], name="par1"),
    "separator-at-the-end-and-blank-name.csv": ",x,y,\n0,1.5,0,\n1,2.5,1,\n",
}

TABLES |= {
    "packed.csv.gz": gzip.compress(PLAIN.encode(), mtime=0),
    "packed-unsaid.csv": gzip.compress(PLAIN.encode(), mtime=0),
    "not-packed.csv.gz": PLAIN,
    "cut-off.csv.gz": gzip.compress(PLAIN.encode(), mtime=0)[:-12],
    "text.parquet": PLAIN,
    "parquet.csv": parquet(),
    "workbook.csv": workbook(),
    "page.csv": "<!DOCTYPE html>\n<html><head><title>Sign in</title></head>\n<body/></html>\n",
    "json-lines.csv": '{"city": "Oslo", "x": 1.5, "y": 0}\n{"city": "Rome", "x": 2.5, "y": 1}\n',
    "json.csv": '[\n  {"city": "Oslo", "x": 1.5, "y": 0},\n  {"city": "Rome", "y": 1}\n]\n',
    "plain.txt": PLAIN,
}

if __name__ == "__main__":
    for name, content in TABLES.items():
        (HERE / name).write_bytes(content if isinstance(content, bytes) else content.encode())
